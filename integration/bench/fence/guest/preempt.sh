#!/bin/bash
# Runs in the guest: its kernel lets itself be interrupted, where it can (CONFIG_PREEMPT_DYNAMIC).
set -euo pipefail
switch=/sys/kernel/debug/sched/preempt
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
[ ! -w $switch ] || echo full >$switch
