#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the guest, as the service whose I/O is fenced: what rpm-ostree does to a disk when it stages an image.
# stage.sh COMMIT...: the last one is deployed, those before it are its layers. A commit is a transaction: it ends with a syncfs.
# When each of them ended is noted in /run/bench/steps.
set -euo pipefail
step() {
    read -r now _ </proc/uptime
    echo "$now" >>/run/bench/steps
}
: >/run/bench/steps
trap 'echo $? >/run/bench/ended' EXIT
mount -o remount,rw /sysroot
for commit; do
    ostree pull-local --repo=/sysroot/ostree/repo --disable-verify-bindings /var/media/repo "$commit"
    step
done
ostree admin deploy --stage --os=fedora-coreos "$commit"
