# SPDX-License-Identifier: Apache-2.0
"""The place of the rules in the course of an update: what the OS goes from and to, with the facts about this host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.config.image import content_id
from nodeagent.core.plan.deployment import OsTarget, contents, merged_arguments
from nodeagent.core.plan.steps import RemovePath
from nodeagent.features.update_graph.decide.release import Jump, JumpAnswer, Release
from nodeagent.update.run import Update
from nodeagent.update.stages.guard import Guard
from nodeagent.update.stages.os_deployments import HostDeployments


class JumpGate(Protocol):
    """The rules for updates of the OS: the file of the admin, the update graph, and the built-in requirements."""

    async def check(self, jump: Jump) -> JumpAnswer:
        """Return what is worth a note about a jump that nothing forbids.

        Raises ``Refused`` (``BarrierSkipped``, ``DeadEnd``, ``NoUpdatePath``, ``VersionUnknown``, ``RequirementUnmet``,
        ``UpdatePathInvalid``, ``GraphRejected``) and ``Unreachable`` (``GraphUnreachable``).
        """
        ...


class JumpGuard(Guard):
    """An update of the OS goes only where no rule forbids it."""

    def __init__(self, gate: JumpGate) -> None:
        self._gate = gate

    async def check_target(
        self, update: Update, os: HostDeployments, target: OsTarget, *, staged: bool
    ) -> Sequence[str]:
        """Raises as ``JumpGate.check``."""
        # The version of an image is known before it is on the host only if a graph, the file of the admin or an
        # earlier staging names it.
        if target.image is None:
            return ()
        booted = await os.booted()
        # A rule may require a file, so the files are those that the update leaves behind.
        managed = {path: entry.content for path, entry in expand(update.new).items() if isinstance(entry, RegularFile)}
        removed = dict.fromkeys(step.path for step in update.writes if isinstance(step, RemovePath))
        jump = Jump(
            Release(booted.version, contents(booted)),
            Release(os.version_of(target.image), frozenset({content_id(target.image)})),
            merged_arguments(booted.kernel_arguments, target),
            {**removed, **managed},
            staged,
        )
        answer = await self._gate.check(jump)
        update.add_notes(*answer.warnings)
        return answer.notes
