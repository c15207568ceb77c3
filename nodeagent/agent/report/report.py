"""The only writer of status. Every event goes through here, and everything that tells something is a sink of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from nodeagent import log
from nodeagent.core.backoff import jittered
from nodeagent.core.report.display import displayable
from nodeagent.core.report.status import Status, StatusProblem, fold
from nodeagent.core.update.events import Event, EventKind
from nodeagent.core.update.ports import Holder, Lease
from nodeagent.errors import AgentError, Refused, full_text

__all__ = ["Report", "ReportedLease", "Sink"]

Sink = Callable[[Event, Status], None]

LOOK = 60.0
"""Seconds between two looks at who has the lease while we do not use it."""


class Report:
    """Fulfils ``ports.Reporter``. Words that others have chosen are made harmless here, for all sinks and the status.
    A sink must not block. One that raises has a bug, which is logged once and harms
    neither the update nor the other sinks."""

    def __init__(self, status: Status) -> None:
        self.status = status
        self._sinks: list[Sink] = []
        self._broken: set[Sink] = set()

    def add(self, sink: Sink) -> None:
        self._sinks.append(sink)

    def emit(self, event: Event) -> None:
        event = displayable(event)
        self.status = fold(self.status, event)
        for sink in self._sinks:
            try:
                sink(event, self.status)
            except Exception as error:  # noqa: BLE001 - text from outside reaches sinks, and they only display it
                if sink not in self._broken:
                    self._broken.add(sink)
                    words = f"an event could not be reported: {type(error).__name__}: {error}"
                    log.get(__name__).error(words, reason="InternalError", exc_info=error)

    def problem(self, topic: str, error: AgentError) -> None:
        """Reports what an admin has to put right while the agent goes on; once, until it changes."""
        text = full_text(error, 5)
        found = displayable(StatusProblem(topic, error.reason, text))
        if found not in self.status.problems:
            self.emit(Event(EventKind.WARNING, self.status.phase, text, error.reason, fields={"problem": found}))

    def solved(self, topic: str, message: str) -> None:
        """``topic`` is no problem any more, if it was one."""
        if any(found.topic == topic for found in self.status.problems):
            fields = {"problem": StatusProblem(topic, "", ""), "solved": 1}
            self.emit(Event(EventKind.WARNING, self.status.phase, message, fields=fields))


class ReportedLease:
    """A lease whose every change of hands is told. Fulfils ``ports.Lease``."""

    def __init__(self, lease: Lease, report: Report) -> None:
        self._lease = lease
        self._report = report
        self.backend = lease.backend

    async def acquire(self, holder: str, operation: str, reason: str) -> None:
        try:
            await self._lease.acquire(holder, operation, reason)
        except Refused:
            await self._tell()
            raise
        await self._tell()

    async def check(self, operation: str, *, need: float = 0.0, offline: bool = False) -> None:
        await self._lease.check(operation, need=need, offline=offline)

    async def before_reboot(self, operation: str, cover: float) -> None:
        await self._lease.before_reboot(operation, cover)
        await self._tell()

    async def extend(self, operation: str, seconds: float | None) -> None:
        await self._lease.extend(operation, seconds)
        await self._tell()

    async def release(self, operation: str) -> None:
        await self._lease.release(operation)
        await self._tell()

    async def holder(self) -> Holder | None:
        return await self._lease.holder()

    async def _tell(self) -> None:
        """What was done is done, also where nobody can be asked about it just now."""
        with suppress(AgentError):
            await self.tell()

    async def tell(self) -> None:
        now, before = displayable(await self._lease.holder()), self._report.status.lease
        if now != before:
            renewed = now is not None and before is not None and replace(now, expires=before.expires) == before
            fields = {"holder": now, "often": renewed}
            self._report.emit(Event(EventKind.LEASE, self._report.status.phase, fields=fields))

    async def run(self, chance: Callable[[], float]) -> None:
        """For ever, for a lease that others take without telling us. ``chance`` spreads the hosts of a fleet."""
        while True:
            await self._tell()
            await asyncio.sleep(jittered(LOOK, chance()))
