# SPDX-License-Identifier: Apache-2.0
"""The place of the quorum in the course of an update and of a maintenance."""

from __future__ import annotations

from typing import Protocol

from nodeagent.update.stages.guard import Guard


class Quorum(Protocol):
    """The quorum of the etcd cluster that has a member on this host."""

    async def check(self) -> object:
        """Raise ``Refused`` if the cluster would lose its quorum without this host. A host without a member passes."""
        ...

    # A leader that just stops costs the clients of etcd an election, about a second; a leadership that was moved costs
    # nothing that they notice.
    async def move_leader(self) -> object:
        """Check, and move the leadership to another member."""
        ...


class QuorumGuard(Guard):
    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    async def permit_stop(self) -> None:
        await self._quorum.check()

    async def before_stop(self) -> None:
        await self._quorum.move_leader()
