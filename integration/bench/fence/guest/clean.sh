#!/bin/bash
# Runs in the guest between two stagings, while the disk is fast: what was staged is gone, and none of it in memory.
# By hand, because ostree's own cleanup reads all trees, which takes a minute without KVM. What came since /run/bench/stamp
# was staged: known by its birth, since links to older objects change all other times.
set -euo pipefail
rm -f /run/ostree/staged-deployment /run/ostree/staged-deployment-locked
# shellcheck disable=SC2016 # expanded inside
unshare --mount bash -euo pipefail -c '
mount -o remount,rw /sysroot
for deployment in /sysroot/ostree/deploy/*/deploy/*.[0-9]; do
    if [ ! "$deployment" -ef / ]; then
        chattr -i "$deployment"
        rm -rf "$deployment" "$deployment.origin"
    fi
done
find /sysroot/ostree/repo/objects -type f -newerBm /run/bench/stamp -delete
'
sync
echo 3 >/proc/sys/vm/drop_caches
