#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the guest: gives the system disk's queue a shape, or puts back what this found.
# queue.sh set SIZE DEPTH SCHEDULER WBT ("-": as it is), and later: queue.sh restore
set -euo pipefail
q=/sys/block/vda/queue found=/run/bench/queue
case $1 in
set)
    read -r size <$q/max_sectors_kb
    read -r depth <$q/nr_requests
    scheduler=$(sed 's/.*\[\(.*\)\].*/\1/' $q/scheduler)
    echo "$size $depth $scheduler" >$found
    [ "$2" = - ] || echo "$2" >$q/max_sectors_kb
    if [ "$3" != - ]; then
        # The depth of the disk itself can be set without a scheduler only.
        echo none >$q/scheduler
        echo "$3" >$q/nr_requests
    fi
    [ "$4" = - ] || echo "$4" >$q/scheduler
    [ "$5" = - ] || echo "$5" >$q/wbt_lat_usec || true
    ;;
restore)
    read -r size depth scheduler <$found
    echo none >$q/scheduler
    # By way of the number below it: after a scheduler went, the number that is shown may not be the disk's.
    echo $((depth - 1)) >$q/nr_requests
    echo "$depth" >$q/nr_requests
    echo "$size" >$q/max_sectors_kb
    echo "$scheduler" >$q/scheduler
    echo -1 >$q/wbt_lat_usec || true
    ;;
esac
