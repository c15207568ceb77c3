# SPDX-License-Identifier: Apache-2.0
"""The view of the event of the feature, and of its part of the status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.core.syslog import DEBUG, NOTICE
from nodeagent.features.maintenance.decide import NOTE, Maintenance, MaintenanceState, from_text
from nodeagent.features.maintenance.events import MaintenanceChanged
from nodeagent.features.maintenance.reasons import MaintenanceReason
from nodeagent.report.event_view import EventView, Field
from nodeagent.report.exposition import Family, Sample
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.part_view import Disruption, PartView, TypedProperty
from nodeagent.report.status import Status

MAINTENANCE = Family(
    "nodeagent_maintenance",
    "1 while an operator has requested a maintenance. Absent without one.",
    ("requester", "state"),
)
MAINTENANCE_START = Family("nodeagent_maintenance_start_timestamp_seconds", "Time of the request for the maintenance.")


@dataclass(frozen=True, slots=True)
class MaintenanceStatus:
    """``waits`` is the text of the cause of a wait."""

    maintenance: Maintenance
    waits: str = ""


def _note(status: Status) -> Maintenance | None:
    part = status.part(MaintenanceStatus)
    return part.maintenance if part is not None else None


def _fields(event: MaintenanceChanged, _status: Status) -> Mapping[str, Field]:
    note = event.maintenance
    if note is None:
        return {"waits": event.waits}
    return {"waits": event.waits, "requester": note.requester, "why": note.reason, "until": note.until}


def _changed(status: Status, event: MaintenanceChanged) -> Status:
    note = event.maintenance
    if note is None:
        return status.without_part(MaintenanceStatus)
    return status.with_part(MaintenanceStatus(note, event.waits))


def _node_events(_event: MaintenanceChanged, status: Status, memory: NodeMemory) -> Iterator[NodeEvent]:
    note, before = _note(status), _note(memory.status)
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
        yield from _entered(note, state, was)


def _entered(note: Maintenance, state: MaintenanceState, was: MaintenanceState | None) -> Iterator[NodeEvent]:
    match state:
        case MaintenanceState.PLANNED:
            yield NodeEvent("MaintenancePlanned", "Maintain", note.words)
        case MaintenanceState.DRAINING:
            yield from _started(note, was)
            yield NodeEvent("DrainRequested", "Drain", note.words)
        case MaintenanceState.POWERING_OFF:
            yield from _started(note, was)
            yield NodeEvent("PoweringOff", "PowerOff", note.words)
        case MaintenanceState.UNDER_WAY:
            yield from _started(note, was)
        case MaintenanceState.ENDING:
            yield NodeEvent(MaintenanceReason.MAINTENANCE_ENDING, "Maintain", f"{note.words} ({note.ended})")


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


def _to_json(part: MaintenanceStatus, status: Status) -> Mapping[str, Any]:
    """``state`` is a ``MaintenanceState``; ``message`` is what it waits for."""
    note = part.maintenance
    return {
        "id": note.id,
        "state": str(note.state(status.boot_id)),
        "requester": note.requester,
        "reason": note.reason,
        "since": note.began or note.since,
        "until": note.until,
        "drain": note.drain,
        "drained": note.drained,
        "power_off": note.power_off,
        "message": part.waits or note.problem or note.ended,
    }


def _state(status: Status) -> str:
    note = _note(status)
    return str(note.state(status.boot_id)) if note is not None else ""


def _disruption(part: MaintenanceStatus, status: Status) -> Disruption:
    note = part.maintenance
    state = note.state(status.boot_id)
    return Disruption(
        requester=note.requester,
        reason=note.reason,
        # The request may be days older than the drain.
        since=note.began,
        until=note.until,
        planned=state is MaintenanceState.PLANNED,
        draining=state is MaintenanceState.DRAINING,
        drained=bool(note.drained),
        drain_by=note.drain_by,
        then="the maintenance goes on without the drain",
        waits=part.waits,
    )


def _stored(note: Callable[[str], str]) -> MaintenanceStatus | None:
    # What it waits for is not stored: only a daemon that tries can know it.
    maintenance = from_text(note(NOTE))
    return MaintenanceStatus(maintenance) if maintenance is not None else None


def _samples(status: Status) -> Iterator[Sample]:
    note = _note(status)
    if note is None:
        return
    # The state is a label, so that an alert can leave out a maintenance that is only planned.
    yield MAINTENANCE.at(1, note.requester, note.state(status.boot_id))
    if (since := parse_time(note.since)) is not None:
        yield MAINTENANCE_START.at(since)


STATUS = (
    PartView(
        part=MaintenanceStatus,
        key="maintenance",
        to_json=_to_json,
        phrase=lambda part, status: f"maintenance {_state(status)}, {part.maintenance.words}",
        properties={"Maintenance": TypedProperty("s", "the state of the maintenance, or empty", _state)},
        disruption=_disruption,
        stored=_stored,
        families=(MAINTENANCE, MAINTENANCE_START),
        samples=_samples,
    ),
)
