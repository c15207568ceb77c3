# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class BootCountingReason(ReasonEnum):
    # fmt: off
    BOOT_COUNT_FAILED = "BootCountFailed", Kind.FAULT, "findmnt /boot and the message show why; then grub2-editenv - unset boot_counter, and apply again", "The boots of the new OS could not be counted, or the counter not be cleared."
    GREENBOOT_FAILED = "GreenbootFailed", Kind.FAULT, "journalctl -b -u greenboot-healthcheck names the check that failed", "A health check of greenboot failed after the boot."
    # fmt: on
