#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in the guest: io.cost on the system disk with a given model: iocost.sh on WEIGHT IOPS BPS, or iocost.sh off.
# It may use nine tenths of the disk, so that the waiting is in the kernel and not in the disk.
set -euo pipefail
device=$(cat /sys/block/vda/dev)
case $1 in
on)
    model="rbps=$4 rseqiops=$3 rrandiops=$3 wbps=$4 wseqiops=$3 wrandiops=$3"
    echo "$device ctrl=user model=linear $model" >/sys/fs/cgroup/io.cost.model
    echo "$device enable=1 ctrl=user rpct=0 wpct=0 min=90.00 max=90.00" >/sys/fs/cgroup/io.cost.qos
    systemctl set-property --runtime victims.slice IOWeight=1000
    systemctl set-property --runtime osupdate.slice IOWeight="$2"
    ;;
off) echo "$device enable=0" >/sys/fs/cgroup/io.cost.qos ;;
esac
