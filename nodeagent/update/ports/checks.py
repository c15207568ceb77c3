# SPDX-License-Identifier: Apache-2.0
"""The ports for checks of the admin: programs and rules for versions, that decide whether an update goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nodeagent.core.check_stage import CheckStage
from nodeagent.core.plan.jumps.release import Jump, JumpAnswer


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


class AdminChecks(Protocol):
    """The checks of this host. A check may run again after a kill, so it must be repeatable."""

    # As in the directories of greenboot, whose wanted checks are reported only.
    async def found(self, stage: CheckStage) -> Sequence[AdminCheck]:
        """Return the checks in the order in which they run: the required ones first.

        Raises ``Refused`` (``CheckUnsafe``) for a program that users other than root could replace.
        """
        ...

    # The node may be out of service while a check runs, so none may hang.
    async def run(self, check: AdminCheck, config: str) -> str:
        """Return why the check failed, with the end of its output, or "" if it passed.

        ``config`` is the name of the config that the host is updated to. Takes at most the time of the settings.
        """
        ...


class JumpGate(Protocol):
    """The rules for updates of the OS: the file of the admin, the update graph, and the built-in requirements."""

    async def check(self, jump: Jump) -> JumpAnswer:
        """Return what is worth a note about a jump that nothing forbids.

        Raises ``Refused`` (``BarrierSkipped``, ``DeadEnd``, ``NoUpdatePath``, ``VersionUnknown``, ``RequirementUnmet``,
        ``UpdatePathInvalid``, ``GraphRejected``) and ``Unreachable`` (``GraphUnreachable``).
        """
        ...
