"""What is known before anything happened: the record of the last life, as far as it can be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from nodeagent.agent.report.report import Report
from nodeagent.agent.update.run import Ports
from nodeagent.core.coordination.drain import Remaining
from nodeagent.core.coordination.maintenance import add_seconds
from nodeagent.core.report.display import displayable
from nodeagent.core.report.status import Status
from nodeagent.core.update.events import Event, EventKind
from nodeagent.core.update.phase import DISRUPTIVE, Phase
from nodeagent.core.update.record import degraded_record
from nodeagent.errors import AgentError
from nodeagent.settings.cluster import DrainSettings

__all__ = ["drain_teller", "first_status"]

_T = TypeVar("_T")

_THEN = {"reboot": "the host is rebooted all the same", "abort": "the update is given up and tried again later"}
_EMPTY = DISRUPTIVE - {Phase.DRAINING}


async def first_status(ports: Ports, report: Report, *, clustered: bool) -> None:
    """Sets the status of ``report``. A row of the store that cannot be read is a problem, and the rest is shown."""
    boot_id = ports.power.boot_id()
    faults: list[AgentError] = []
    record = await _read(ports.store.load, degraded_record(), faults)
    if faults:
        fault = faults.pop()
        record = degraded_record(fault.reason, str(fault))
    digest = await _read(ports.store.current, "", faults)
    current = ""
    if digest:
        current = await _read(lambda: _name(ports, digest), "", faults)
    # A cluster's lease is read later: nothing of ours waits for an API server to start.
    holder = None if clustered else await _read(ports.coordination.holder, None, faults)
    known = Status(
        phase=record.phase,
        reason=record.reason,
        message=record.message,
        since=record.since,
        current=current,
        desired=record.to_name or current,
        current_digest=digest,
        target=record.to_name if record.phase not in (Phase.IDLE, Phase.DEGRADED) else "",
        boot_id=boot_id,
        update_id=record.update_id,
        backend=ports.coordination.backend,
        drained=bool(record.cordon) and not record.fallback and record.phase in _EMPTY,
        lease=holder,
        problems=report.status.problems,
    )
    report.status = displayable(known)
    if faults:
        report.problem("store", faults[0])


async def _name(ports: Ports, digest: str) -> str:
    return (await ports.store.get_config(digest)).name


async def _read(read: Callable[[], Awaitable[_T]], otherwise: _T, faults: list[AgentError]) -> _T:
    try:
        return await read()
    except AgentError as error:
        faults.append(error)
        return otherwise


def drain_teller(report: Report, settings: Callable[[], DrainSettings]) -> Callable[[Sequence[Remaining]], None]:
    def tell(remaining: Sequence[Remaining]) -> None:
        status, present = report.status, settings()
        if status.maintenance is not None and status.phase is not Phase.DRAINING:
            by, then = status.maintenance.drain_by, "the maintenance goes on without the drain"
        else:
            by, then = add_seconds(status.since, present.timeout), _THEN[present.on_deadline]
        often = status.remaining is not None and len(status.remaining) == len(remaining)
        fields = {"remaining": remaining, "often": often, "left": len(remaining), "by": by, "then": then}
        report.emit(Event(EventKind.DRAIN, status.phase, update_id=status.update_id, fields=fields))

    return tell
