#!/bin/bash
# Runs in the guest between two stagings, while the disk is fast: all that was staged is gone, and no page of it is left in memory.
set -euo pipefail
unshare --mount bash -euo pipefail -c '
mount -o remount,rw /sysroot
if [ -e /run/ostree/staged-deployment ]; then ostree admin undeploy 0 >/dev/null; fi
ostree admin cleanup >/dev/null
ostree prune --repo=/sysroot/ostree/repo --refs-only >/dev/null
'
sync
echo 3 >/proc/sys/vm/drop_caches
