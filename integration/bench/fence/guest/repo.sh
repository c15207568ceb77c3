#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the guest: repo.sh KEY VALUE sets an option of the system's repository, which is read-only for all but ostree.
set -euo pipefail
unshare --mount bash -euc 'mount -o remount,rw /sysroot; ostree config --repo=/sysroot/ostree/repo set "$0" "$1"' "$1" "$2"
