#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the guest between two stagings, while the disk is fast: what was staged is gone, and none of it in memory.
# By hand, because ostree's own cleanup reads all trees, which takes a minute without KVM. The first time it only notes
# which objects there are.
set -euo pipefail
known=/run/bench/objects
objects() { find /sysroot/ostree/repo/objects -type f | sort; }
if [ ! -e $known ]; then
    objects >$known
    exit
fi
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
xargs --no-run-if-empty rm
' < <(objects | comm -13 $known -)
sync
# What that changed in the file system's own data is written now, and not half a minute later, in what is measured.
fsfreeze --freeze /sysroot && fsfreeze --unfreeze /sysroot
echo 3 >/proc/sys/vm/drop_caches
