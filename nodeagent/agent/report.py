"""The only writer of status. Every event goes through here, and everything that tells something is a sink of it."""

from __future__ import annotations

from collections.abc import Callable

from nodeagent.core.events import Event, EventKind
from nodeagent.core.ports import Holder, Lease
from nodeagent.core.status import Status, fold

__all__ = ["Report", "ReportedLease", "Sink"]

Sink = Callable[[Event, Status], None]


class Report:
    """Fulfils ``ports.Reporter``. A sink must neither block nor raise for a reason outside of it."""

    def __init__(self, status: Status) -> None:
        self.status = status
        self._sinks: list[Sink] = []

    def add(self, sink: Sink) -> None:
        self._sinks.append(sink)

    def emit(self, event: Event) -> None:
        self.status = fold(self.status, event)
        for sink in self._sinks:
            sink(event, self.status)


class ReportedLease:
    """A lease whose every change of hands is told. Fulfils ``ports.Lease``."""

    def __init__(self, lease: Lease, report: Report) -> None:
        self._lease = lease
        self._report = report
        self.backend = lease.backend

    async def acquire(self, holder: str, operation: str, reason: str) -> None:
        try:
            await self._lease.acquire(holder, operation, reason)
        finally:
            await self.tell()

    async def check(self, operation: str) -> None:
        await self._lease.check(operation)

    async def release(self, operation: str) -> None:
        await self._lease.release(operation)
        await self.tell()

    async def holder(self) -> Holder | None:
        return await self._lease.holder()

    async def tell(self) -> None:
        now = await self._lease.holder()
        if now != self._report.status.lease:
            self._report.emit(Event(EventKind.LEASE, self._report.status.phase, fields={"holder": now}))
