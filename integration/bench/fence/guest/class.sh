#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the guest: gives every thread of some services an I/O class: class.sh "-c1 -n0" UNIT...
set -euo pipefail
options=$1
shift
for unit; do
    for thread in /proc/"$(systemctl show --value --property=MainPID "$unit")"/task/*; do
        # shellcheck disable=SC2086 # options are words
        ionice $options -p "${thread##*/}"
    done
done
