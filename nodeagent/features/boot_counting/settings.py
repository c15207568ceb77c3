# SPDX-License-Identifier: Apache-2.0
"""The settings of the feature."""

from __future__ import annotations

from typing import Literal

from nodeagent.settings.part import Part


class BootCountingSettings(Part, frozen=True, forbid_unknown_fields=True):
    """``count_boots``: whether GRUB counts the boots of a new deployment, and takes the previous one after three that
    failed. auto: where the configuration of GRUB counts boots, as on hosts with greenboot. never: nodeagent changes no
    variable of GRUB, for hosts where another program counts. auto is the default because a kernel that does not start
    leaves nothing that could come back without it."""

    group = "os"

    count_boots: Literal["auto", "never"] = "auto"
