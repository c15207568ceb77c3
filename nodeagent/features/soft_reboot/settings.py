# SPDX-License-Identifier: Apache-2.0
"""The setting of the feature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from nodeagent.settings.part import Contradiction, Part
from nodeagent.settings.schema import Settings


class SoftRebootSettings(Part, frozen=True, forbid_unknown_fields=True):
    """Soft reboots.

    ``soft``: whether a reboot may be a soft one, which starts all services again and keeps the kernel. never: each
    reboot is a full one. fallback: a fallback reboot is soft where that is enough and the host can do it; if the config
    is still bad after it, a full reboot follows before anything is reverted. auto: also the reboot into a new
    deployment with the same kernel, initramfs, kernel arguments and SELinux policy. never is the default because a soft
    reboot keeps the boot ID, which programs of a cluster may wait for.
    """

    group = "reboot"

    soft: Literal["never", "fallback", "auto"] = "never"

    def contradictions(self, settings: Settings) -> Iterator[Contradiction]:
        if self.soft != "never" and not settings.reboot.allow:
            yield ("reboot.soft", "reboot.allow"), f"reboot.soft: {self.soft} needs reboot.allow: true"
