"""The desired config as the cluster orders it, and what is told there about it: the handshake, for the loop and the
report."""

from __future__ import annotations

import asyncio

from nodeagent.agent.report.report import Report
from nodeagent.agent.update.preflight import Desired, read_source
from nodeagent.core.report.status import Status
from nodeagent.core.update.events import Event, EventKind
from nodeagent.errors import AgentError
from nodeagent.kube.handshake import Handshake

__all__ = ["ClusterConfigSource", "warn"]


class ClusterConfigSource:
    def __init__(self, handshake: Handshake) -> None:
        self._handshake = handshake

    async def desired(self) -> Desired | None:
        """Raises what ``Handshake.desired`` and ``parse`` raise."""
        source = await self._handshake.desired()
        return await asyncio.to_thread(read_source, source) if source is not None else None

    def sink(self, _event: Event, status: Status) -> None:
        self._handshake.tell(status)

    async def run(self, status: Status) -> None:
        """``status``: as it is now. What changes later comes to the sink."""
        self._handshake.tell(status)
        await self._handshake.run()


def warn(report: Report, fault: AgentError | None) -> None:
    if fault is not None:  # that it is over is told by what goes on then
        said = f"the Node cannot be followed: {fault.message}"
        report.emit(Event(EventKind.WARNING, report.status.phase, said, fault.reason))
