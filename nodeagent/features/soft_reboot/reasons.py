# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class SoftRebootReason(ReasonEnum):
    # fmt: off
    KERNEL_START_NEEDED = "KernelStartNeeded", Kind.REFUSED, "wait: the reboot is a full one, because a soft one would not apply these changes", "Some changes take effect only when the kernel starts."
    SOFT_REBOOT_UNSUPPORTED = "SoftRebootUnsupported", Kind.REFUSED, "unmask soft-reboot.target, or update systemd to 254, and libostree to 2026.1; or set reboot.soft: never", "systemd or libostree of this host cannot do a soft reboot."
    SOFT_REBOOT_NOT_PREPARED = "SoftRebootNotPrepared", Kind.REFUSED, "wait: a full reboot takes its place; journalctl -b -u 'nodeagent-run-*' has the error of ostree", "libostree could not prepare the soft reboot into the new OS."
    NEXT_ROOT_PREPARED = "NextRootPrepared", Kind.REFUSED, "ostree admin prepare-soft-reboot --reset, or umount -R /run/nextroot; the reboot is a full one until then", "Another program has prepared the root of a soft reboot."
    ENCRYPTED_ROOT = "EncryptedRoot", Kind.REFUSED, "add x-initrd.attach to the device in /etc/crypttab, and reboot once; or set reboot.soft: never", "A soft reboot would detach the encrypted device of the root."
    # fmt: on
