# SPDX-License-Identifier: Apache-2.0
"""The port for rules of versions, which decide whether an update of the OS goes on."""

from __future__ import annotations

from typing import Protocol

from nodeagent.core.plan.jumps.release import Jump, JumpAnswer


class JumpGate(Protocol):
    """The rules for updates of the OS: the file of the admin, the update graph, and the built-in requirements."""

    async def check(self, jump: Jump) -> JumpAnswer:
        """Return what is worth a note about a jump that nothing forbids.

        Raises ``Refused`` (``BarrierSkipped``, ``DeadEnd``, ``NoUpdatePath``, ``VersionUnknown``, ``RequirementUnmet``,
        ``UpdatePathInvalid``, ``GraphRejected``) and ``Unreachable`` (``GraphUnreachable``).
        """
        ...
