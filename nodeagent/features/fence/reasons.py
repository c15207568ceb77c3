# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class FenceReason(ReasonEnum):
    # fmt: off
    QUEUE_NOT_RESTORED = "QueueNotRestored", Kind.FAULT, "look at the disk (grep . /sys/block/*/queue/* 2>/dev/null); a reboot resets it"
    NO_IO_CONTROL = "NoIoControl", Kind.FAULT, "boot with the unified cgroup hierarchy; until then only the disk queue is limited"
    LIMIT_NOT_HELD = "LimitNotHeld", Kind.RETRY, "journalctl -b _PID=1 shows why systemd could not limit it; the agent retries"
    LIMITS_NOT_RESET = "LimitsNotReset", Kind.FAULT, "systemctl set-property --runtime UNIT IOWriteBandwidthMax= IOWriteIOPSMax=, or reboot"
    NO_UDEV = "NoUdev", Kind.FAULT, "install libudev (part of systemd); until then the I/O of staging is not limited"
    NO_DISK = "NoDisk", Kind.FAULT, "no action: /sysroot is not on a local disk, or on btrfs, so the I/O of staging is not limited"
    NO_METRICS = "NoMetrics", Kind.RETRY, "check the metrics of etcd with curl; the fence uses its own probe"
    UPDATER_BUSY = "UpdaterBusy", Kind.RETRY, "no action: another rpm-ostree transaction was active; the next update is fenced again"
    NO_PRIORITIES = "NoPriorities", Kind.FAULT, "no action: this machine has no usable I/O priorities"
    PRIORITY_NOT_RESTORED = "PriorityNotRestored", Kind.FAULT, "set it with ionice -p PID; restarting etcd or a reboot resets it too"
    OTHER_DISK = "OtherDisk", Kind.FAULT, "no action: etcd has a disk of its own"
    NOTHING_TO_LIMIT = "NothingToLimit", Kind.FAULT, "none needed if etcd copes; the message names what this host lacks"
    FENCE_NOT_RECOVERED = "FenceNotRecovered", Kind.FAULT, "restore the settings in the message manually, or reboot; until then nothing is limited"
    FENCE_FAILED = "FenceFailed", Kind.FAULT, "report it, with journalctl -u nodeagent; the update continued without I/O limits"
    METRICS_INVALID = "MetricsInvalid", Kind.RETRY, "check etcd's metrics with curl; until then the fence uses its own probe"
    # fmt: on
