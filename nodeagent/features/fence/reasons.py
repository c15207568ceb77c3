# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class FenceReason(ReasonEnum):
    # fmt: off
    QUEUE_NOT_RESTORED = "QueueNotRestored", Kind.FAULT, "look at the disk (grep . /sys/block/*/queue/* 2>/dev/null); a reboot resets it", "The queue of the disk could not be set back after a staging."
    NO_IO_CONTROL = "NoIoControl", Kind.FAULT, "boot with the unified cgroup hierarchy; until then only the disk queue is limited", "The kernel of this host cannot limit the I/O of a unit."
    LIMIT_NOT_HELD = "LimitNotHeld", Kind.RETRY, "journalctl -b _PID=1 shows why systemd could not limit it; the agent retries", "systemd did not set the limit of the I/O."
    LIMITS_NOT_RESET = "LimitsNotReset", Kind.FAULT, "systemctl set-property --runtime UNIT IOWriteBandwidthMax= IOWriteIOPSMax=, or reboot", "Limits of the I/O are left from a staging."
    NO_UDEV = "NoUdev", Kind.FAULT, "install libudev (part of systemd); until then the I/O of staging is not limited", "The disk of the OS cannot be found without libudev."
    NO_DISK = "NoDisk", Kind.FAULT, "no action: /sysroot is not on a local disk, or on btrfs, so the I/O of staging is not limited", "The OS is on no disk whose I/O could be limited."
    NO_METRICS = "NoMetrics", Kind.RETRY, "check the metrics of etcd with curl; the fence uses its own probe", "The latency of etcd's disk cannot be read from its metrics."
    UPDATER_BUSY = "UpdaterBusy", Kind.RETRY, "no action: another rpm-ostree transaction was active; the next update is fenced again", "Another client of rpm-ostree was active, so its I/O was not limited."
    NO_PRIORITIES = "NoPriorities", Kind.FAULT, "no action: this machine has no usable I/O priorities", "The scheduler of the disk does not use I/O priorities."
    PRIORITY_NOT_RESTORED = "PriorityNotRestored", Kind.FAULT, "set it with ionice -p PID; restarting etcd or a reboot resets it too", "The I/O priority of a process could not be set back after a staging."
    OTHER_DISK = "OtherDisk", Kind.FAULT, "no action: etcd has a disk of its own", "The OS is staged on another disk than that of etcd, so nothing has to be limited."
    NOTHING_TO_LIMIT = "NothingToLimit", Kind.FAULT, "none needed if etcd copes; the message names what this host lacks", "This host has none of the means to limit the I/O of a staging."
    FENCE_NOT_RECOVERED = "FenceNotRecovered", Kind.FAULT, "restore the settings in the message manually, or reboot; until then nothing is limited", "Settings that a killed agent left could not be set back."
    FENCE_FAILED = "FenceFailed", Kind.FAULT, "report it, with journalctl -u nodeagent; the update continued without I/O limits", "The fence ended by an unexpected error."
    METRICS_INVALID = "MetricsInvalid", Kind.RETRY, "check etcd's metrics with curl; until then the fence uses its own probe", "The metrics of etcd cannot be understood."
    # fmt: on
