# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from nodeagent.settings.part import Contradiction, Part
from nodeagent.settings.schema import Settings


class BootloaderSettings(Part, frozen=True, forbid_unknown_fields=True):
    """The bootloader, on hosts with bootupd. An update of the OS does not touch it.

    ``update``: what an update of the OS does about it. never: nothing. report: compare the installed one with that of
    the new OS, report an older one, and refuse an update whose kernel it does not start. before-reboot: also update it
    before the host is drained, with the bootupd of the new OS. after-boot: also update it when the new OS is verified.
    report is the default because a bad bootloader has no fallback.

    ``bios``: whether a bootloader in the boot sectors (BIOS) may be updated as well. False is the default because a
    power cut during such an update leaves a host that does not boot.
    """

    group = "bootloader"

    update: Literal["never", "report", "before-reboot", "after-boot"] = "report"
    bios: bool = False

    def contradictions(self, settings: Settings) -> Iterator[Contradiction]:  # noqa: ARG002
        if self.bios and self.update in ("never", "report"):
            message = f"bootloader.bios needs another bootloader.update than {self.update}, which updates nothing"
            yield ("bootloader.bios", "bootloader.update"), message
