# SPDX-License-Identifier: Apache-2.0
"""A check of the admin, which of them an update runs, and what in their directory would never run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from nodeagent.core.config.file_tree import RegularFile, SymbolicLink
from nodeagent.core.config.unit_names import did_you_mean

CHECKS: Final = "/etc/nodeagent/checks"


class CheckStage(StrEnum):
    """When a check runs. The values are the names of its directory."""

    BEFORE_DRAIN = "before-drain"
    BEFORE_REBOOT = "before-reboot"
    AFTER_BOOT = "after-boot"
    AFTER_APPLY = "after-apply"


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


def problems(path: str, node: RegularFile | SymbolicLink) -> Iterator[str]:
    """Yield why nodeagent would refuse to run a check of a config: its update would be held, or reverted."""
    directory = path.rpartition("/")[0]
    if directory not in [f"{stage}.d/{folder}" for stage in CheckStage for folder in ("required.d", "wanted.d")]:
        yield f"is in none of the directories {CHECKS}/STAGE.d/required.d and wanted.d; STAGE: {', '.join(CheckStage)}"
    elif isinstance(node, RegularFile) and (not node.mode & 0o100 or node.mode & 0o022):
        yield "must be executable, and writable for root only (mode: 493, which is 0755)"


def unread(name: str) -> str:
    """Return why nothing reads this entry of the directory, "" if the checks in it run."""
    stages = [f"{stage}.d" for stage in CheckStage]
    if name in stages:
        return ""
    return f"is no stage of the checks, so nothing in it runs{did_you_mean(name, stages)}"
