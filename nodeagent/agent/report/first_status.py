"""The status at the start of the daemon, from the record that the previous process left in the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from nodeagent.agent.report.report import Report
from nodeagent.agent.update.run import Ports
from nodeagent.core.coordination.drain import Remaining
from nodeagent.core.coordination.maintenance import add_seconds
from nodeagent.core.report.display import displayable
from nodeagent.core.report.status import recorded_status
from nodeagent.core.update.events import DrainAdvanced
from nodeagent.core.update.phase import DISRUPTIVE, Phase
from nodeagent.core.update.record import degraded_record
from nodeagent.errors import AgentError
from nodeagent.settings.cluster import DrainSettings

_T = TypeVar("_T")

_THEN = {"reboot": "the host is rebooted anyway", "abort": "the update is given up and tried again later"}
# Phases of a planned update in which the drain is over and the node is still cordoned.
_AFTER_DRAIN = DISRUPTIVE - {Phase.DRAINING}


async def first_status(ports: Ports, report: Report, *, clustered: bool) -> None:
    """Set the status of ``report``. A row of the store that cannot be read becomes a problem of the status."""
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
    # The lease of a cluster is read by a task of its own, so that the start never waits for an API server.
    holder = None if clustered else await _read(ports.coordination.lease.holder, None, faults)
    known = replace(
        recorded_status(record, current, digest),
        boot_id=boot_id,
        backend=ports.coordination.lease.backend,
        drained=bool(record.cordon) and not record.fallback and record.phase in _AFTER_DRAIN,
        lease=holder,
        problems=report.status.problems,
    )
    report.status = displayable(known)
    if faults:
        report.problem("store", faults[0])


async def _read(read: Callable[[], Awaitable[_T]], otherwise: _T, faults: list[AgentError]) -> _T:
    try:
        return await read()
    except AgentError as error:
        faults.append(error)
        return otherwise


def drain_reporter(report: Report, settings: Callable[[], DrainSettings]) -> Callable[[Sequence[Remaining]], None]:
    """Return the callback of the drain, which reports the remaining pods, the deadline and what follows after it."""

    def report_remaining(remaining: Sequence[Remaining]) -> None:
        status, present = report.status, settings()
        if status.maintenance is not None and status.phase is not Phase.DRAINING:
            by, then = status.maintenance.drain_by, "the maintenance goes on without the drain"
        else:
            by, then = add_seconds(status.since, present.timeout), _THEN[present.on_deadline]
        # Each poll reports, but only a change of the number is a line of the journal.
        routine = status.remaining is not None and len(status.remaining) == len(remaining)
        report.emit(DrainAdvanced(remaining, by, then, routine))

    return report_remaining
