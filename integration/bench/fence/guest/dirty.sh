#!/bin/bash
# Runs in the guest: dirty.sh BYTES STRICT: how much may wait in memory to be written to the system disk; 0: as much as
# the kernel likes. STRICT (1): also while the machine as a whole has few such pages.
set -euo pipefail
bdi=/sys/class/bdi/$(cat /sys/block/vda/dev)
echo "$2" >"$bdi/strict_limit"
if [ "$1" = 0 ]; then echo 100 >"$bdi/max_ratio"; else echo "$1" >"$bdi/max_bytes"; fi
