# SPDX-License-Identifier: Apache-2.0
"""The reasons of the feature."""

from __future__ import annotations

from nodeagent.kinds import Kind, ReasonEnum


class BootloaderReason(ReasonEnum):
    # fmt: off
    BOOTLOADER_TOO_OLD = "BootloaderTooOld", Kind.REJECTED, "update the bootloader (bootupctl update, or bootloader.update: before-reboot), then apply the config again", "The installed bootloader would refuse the kernel of the new OS, so it is not booted."
    BOOTLOADER_OLDER = "BootloaderOlder", Kind.FAULT, "run bootupctl update after the boot, or set bootloader.update; nodeagent status shows both versions", "The installed bootloader is older than that of the new OS."
    BOOTLOADER_UNKNOWN = "BootloaderUnknown", Kind.FAULT, "bootupctl status shows what bootupd knows; bootupctl adopt-and-update lets it take over", "It is not known which bootloader is installed."
    BOOTLOADER_UNFIT = "BootloaderUnfit", Kind.FAULT, "update the firmware of the machine, whose keys are too old for that bootloader; mokutil --db lists them", "The firmware would refuse the bootloader of the new OS."
    BOOTLOADER_UPDATE_FAILED = "BootloaderUpdateFailed", Kind.REJECTED, "journalctl -u nodeagent-bootloader shows the error of bootupctl; then apply the config again", "The bootloader had to be updated before the reboot, and bootupd failed."
    # fmt: on
