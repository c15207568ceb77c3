# SPDX-License-Identifier: Apache-2.0
"""A check of the admin, and which of them an update runs."""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.core.check_stage import CheckStage


@dataclass(frozen=True, slots=True)
class AdminCheck:
    """A program of the admin, or a unit of systemd. The failure of one that is not ``required`` is reported only."""

    stage: CheckStage
    name: str
    required: bool
    path: str

    @property
    def id(self) -> str:
        return f"{self.stage}/{self.name}"

    @property
    def is_unit(self) -> bool:
        """Return whether the name is that of a unit, which systemd has under this name."""
        return self.name.endswith(".service")


def stages_of(*, stops_node: bool, reboots: bool) -> tuple[CheckStage, ...]:
    """Return the stages of an update, in order. ``stops_node``: it drains or stops the node."""
    before = (CheckStage.BEFORE_DRAIN,) if stops_node else ()
    boots = (CheckStage.BEFORE_REBOOT, CheckStage.AFTER_BOOT) if reboots else ()
    return (*before, *boots, CheckStage.AFTER_APPLY)
