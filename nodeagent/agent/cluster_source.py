"""The desired config of a cluster, and the reports to it in annotations of the Node."""

from __future__ import annotations

import asyncio

from nodeagent.agent.report.report import Report
from nodeagent.agent.update.preflight import Desired, read_source
from nodeagent.core.report.status import Status
from nodeagent.core.update.events import Event, UpdateContext, Warned
from nodeagent.errors import AgentError
from nodeagent.kube.handshake import Handshake


class ClusterConfigSource:
    def __init__(self, handshake: Handshake) -> None:
        self._handshake = handshake

    async def desired(self) -> Desired | None:
        """Return the desired config. Raises what ``Handshake.desired`` and ``parse`` raise."""
        source = await self._handshake.desired()
        return await asyncio.to_thread(read_source, source) if source is not None else None

    def sink(self, _event: Event, status: Status) -> None:
        self._handshake.report(status)

    async def run(self, status: Status) -> None:
        """Report ``status``, then what the sink receives."""
        # The annotations of the Node may still be those of the previous process.
        self._handshake.report(status)
        await self._handshake.run()


def warn(report: Report, fault: AgentError | None) -> None:
    """Report a fault. The end of one is visible in the events that follow."""
    if fault is not None:
        message = f"the Node cannot be followed: {fault.message}"
        report.emit(Warned(UpdateContext(report.status.phase), message, fault.reason))
