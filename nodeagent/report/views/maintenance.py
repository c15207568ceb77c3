# SPDX-License-Identifier: Apache-2.0
"""The view of the event of a maintenance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nodeagent.core.coordination.maintenance import Maintenance, MaintenanceState
from nodeagent.core.syslog import DEBUG, NOTICE
from nodeagent.reasons import Reason
from nodeagent.report.event_view import EventView, Field
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.status import Status
from nodeagent.update.ports.events import MaintenanceChanged
from nodeagent.update.states import Phase


def _fields(event: MaintenanceChanged, _status: Status) -> Mapping[str, Field]:
    note = event.maintenance
    if note is None:
        return {"waits": event.waits}
    return {"waits": event.waits, "requester": note.requester, "why": note.reason, "until": note.until}


def _changed(status: Status, event: MaintenanceChanged) -> Status:
    note = event.maintenance
    drains = note is not None and note.state(status.boot_id) is MaintenanceState.DRAINING
    # Remaining pods belong to the current drain. They disappear with its end.
    remaining = status.remaining if drains or status.phase is Phase.DRAINING else None
    return replace(status, maintenance=note, maintenance_waits=event.waits, remaining=remaining)


def _node_events(_event: MaintenanceChanged, status: Status, memory: NodeMemory) -> Iterator[NodeEvent]:
    note, before = status.maintenance, memory.status.maintenance
    if note is None:
        # One that never began had no Event of a start.
        if before is not None and before.began:
            yield NodeEvent("MaintenanceEnded", "Maintain", f"{before.words} ({before.ended or 'over'})")
        return
    if before is not None and not before.drained and note.drained:
        yield NodeEvent("Drained", "Drain", f"for the maintenance by {note.words}")
    if note.problem and (before is None or note.problem != before.problem):
        yield NodeEvent("MaintenanceProblem", "Maintain", f"{note.problem} (for {note.words})", warning=True)
    state, was = note.state(status.boot_id), before.state(memory.status.boot_id) if before is not None else None
    if state is not was:
        yield from _entered(note, state, was, memory)


def _entered(
    note: Maintenance, state: MaintenanceState, was: MaintenanceState | None, memory: NodeMemory
) -> Iterator[NodeEvent]:
    match state:
        case MaintenanceState.PLANNED:
            yield NodeEvent("MaintenancePlanned", "Maintain", note.words)
        case MaintenanceState.DRAINING:
            memory.blocked.clear()
            yield from _started(note, was)
            yield NodeEvent("DrainRequested", "Drain", note.words)
        case MaintenanceState.POWERING_OFF:
            yield from _started(note, was)
            yield NodeEvent("PoweringOff", "PowerOff", note.words)
        case MaintenanceState.UNDER_WAY:
            yield from _started(note, was)
        case MaintenanceState.ENDING:
            yield NodeEvent(Reason.MAINTENANCE_ENDING, "Maintain", f"{note.words} ({note.ended})")


def _started(note: Maintenance, was: MaintenanceState | None) -> Iterator[NodeEvent]:
    """Return the start of a maintenance, unless the previous process reported it."""
    if was is MaintenanceState.PLANNED:
        until = f" until {note.until}" if note.until else ""
        yield NodeEvent("MaintenanceStarted", "Maintain", note.words + until)


VIEWS = (
    EventView(
        event=MaintenanceChanged,
        id="bf7f2058a0204c41a1644533d3dd20d3",
        priority=NOTICE,
        level=lambda event: NOTICE if event.message else DEBUG,
        sentence=lambda event, _: f"maintenance: {event.message}",
        fields=_fields,
        fold=_changed,
        node_events=_node_events,
    ),
)
