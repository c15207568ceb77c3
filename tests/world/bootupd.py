# SPDX-License-Identifier: Apache-2.0
"""The bootloader of the host in memory: versions are numbers, and a kernel starts from some version on."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Bootupd:
    bootloader: int = 0  # installed version; 0: no bootupd
    bootloaders: dict[str, int] = field(default_factory=dict)  # image digest to the version that the image brings
    needs: dict[str, int] = field(default_factory=dict)  # image digest to the least version that starts its kernel
    unfit: str = ""  # why the firmware refuses the newer one
    bootloader_unknown: str = ""  # why bootupctl does not report it
    bootloader_call: int = 0  # number of the effect with which its last update began
    bootloader_updates: list[tuple[int, str, bool]] = field(default_factory=list)  # version, lease holder, after boot

    def starts(self, digest: str) -> bool:
        return not self.bootloader or self.bootloader >= self.needs.get(digest, 0)
