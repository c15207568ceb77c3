# SPDX-License-Identifier: Apache-2.0
"""The only writer of the status. Every event passes through it; journal, D-Bus, metrics and cluster are its sinks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from nodeagent import log
from nodeagent.core.display import displayable
from nodeagent.errors import AgentError, full_text
from nodeagent.reasons import Reason
from nodeagent.report.status import Status, recorded_status
from nodeagent.report.status_fold import fold
from nodeagent.update.course import DISRUPTIVE
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import Event, LeaseChanged, ProblemSolved, StatusProblem
from nodeagent.update.record import degraded_record
from nodeagent.update.run import Ports
from nodeagent.update.states import Phase

Sink = Callable[[Event, Status], None]

_T = TypeVar("_T")

# Phases of a planned update in which the drain is over and the node is still cordoned.
_AFTER_DRAIN = DISRUPTIVE - {Phase.DRAINING}


class Report:
    """Implements ``ports.Reporter``. A sink must not block.

    Text from outside (names of pods, output of programs) is made safe to display here, for the status and all sinks. A
    sink that raises has a bug, which is logged once and affects neither the update nor the other sinks.
    """

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
                    text = f"an event could not be reported: {type(error).__name__}: {error}"
                    log.get(__name__).error(text, reason=Reason.INTERNAL_ERROR, exc_info=error)

    def bug(self, words: str, error: Exception) -> None:
        log.get(__name__).error(words, reason=Reason.INTERNAL_ERROR, exc_info=error)

    def problem(self, topic: str, error: AgentError) -> None:
        """Report a problem that an admin has to solve while the agent continues. The same problem is reported once."""
        problem = displayable(StatusProblem(topic, error.reason, full_text(error, 5)))
        if problem not in self.status.problems:
            self.emit(problem)

    def lease(self, holder: Holder | None) -> None:
        """Report the holder of the node lease, if it changed."""
        holder, before = displayable(holder), self.status.lease
        if holder != before:
            # A renewal changes only the time of expiry. The status shows it, the journal does not.
            renewed = holder is not None and before is not None and replace(holder, expires=before.expires) == before
            self.emit(LeaseChanged(holder, renewed))

    def solved(self, topic: str, message: str) -> None:
        """Report that the problem of ``topic`` is solved, if there was one."""
        if any(problem.topic == topic for problem in self.status.problems):
            self.emit(ProblemSolved(topic, message))


async def first_status(ports: Ports, report: Report, *, shared: bool) -> None:
    """Set the status of ``report``. A row of the store that cannot be read becomes a problem of the status.

    ``shared``: reading the lease may wait for another host.
    """
    boot_id = ports.power.boot_id()
    faults: list[AgentError] = []
    record = await _read(ports.store.load, degraded_record(), faults)
    if faults:
        # The unreadable record is the state of the host, so it is not listed as a problem as well.
        fault = faults.pop()
        record = degraded_record(fault.reason, str(fault))
    digest = await _read(ports.store.current, "", faults)
    current = ""
    if digest:
        source = await _read(lambda: ports.store.get_config(digest), None, faults)
        current = source.name if source is not None else ""
    # Such a lease is read by a task of its own, so that the start never waits.
    holder = None if shared else await _read(ports.coordination.lease.holder, None, faults)
    status = replace(
        recorded_status(record, current, digest),
        boot_id=boot_id,
        backend=ports.coordination.lease.backend,
        drained=bool(record.cordon) and not record.fallback and record.phase in _AFTER_DRAIN,
        lease=holder,
        problems=report.status.problems,
    )
    report.status = displayable(status)
    if faults:
        report.problem("store", faults[0])


async def _read(read: Callable[[], Awaitable[_T]], otherwise: _T, faults: list[AgentError]) -> _T:
    try:
        return await read()
    except AgentError as error:
        faults.append(error)
        return otherwise
