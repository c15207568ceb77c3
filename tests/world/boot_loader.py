# SPDX-License-Identifier: Apache-2.0
"""The boot loader of the host in memory: GRUB with greenboot's script, which counts boots."""

from __future__ import annotations

from dataclasses import dataclass, field

# Boots after which a host that comes up with no deployment is lost.
LOST = 20


@dataclass
class BootLoader:
    counts: bool = True  # grub.cfg has the script
    boot_counter: int | None = None
    boot_success: bool = False
    counted: str = ""  # the deployment for which the agent began to count
    panics: set[str] = field(default_factory=set)  # digests of images whose kernel panics, and reboots
    boots: int = 0  # all that were tried

    def next_entry(self) -> int:
        """Do what greenboot's part of grub.cfg does, and return the index of the entry."""
        index = 0
        if self.counts:
            if self.boot_counter is not None and not self.boot_success:
                if self.boot_counter in (0, -1):
                    index, self.boot_counter = 1, -1
                else:
                    self.boot_counter -= 1
            self.boot_success = False
        self.boots += 1
        return index
