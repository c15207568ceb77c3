# SPDX-License-Identifier: Apache-2.0
"""Views of the events that end an update, or that refuse to begin one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nodeagent.core.syslog import DEBUG, ERROR, NOTICE, WARNING
from nodeagent.reasons import Reason
from nodeagent.report.counters import Counters
from nodeagent.report.event_view import EventView, Field
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.status import Status
from nodeagent.report.views.folding import entered, named, other_problems
from nodeagent.update.history.outcome import ENDED_UNCHANGED
from nodeagent.update.ports.events import ConfigRefused, HostDegraded, UpdateDone, UpdateFinished
from nodeagent.update.states import Phase


def _degraded(status: Status, event: HostDegraded) -> Status:
    return entered(status, event, event.reason, event.message, names_desired=True)


def _degraded_event(event: HostDegraded, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    reason = "UpdateReverted" if event.reason == Reason.REVERTED else "UpdateDegraded"
    yield NodeEvent(reason, "Update", f"{event.reason}: {event.message}", warning=True)


def _refused(status: Status, event: ConfigRefused) -> Status:
    since = event.about.since or status.since
    refused = named(status, event, names_desired=True)
    refused = replace(refused, phase=Phase.DEGRADED, since=since, reason=event.reason, message=event.message)
    return replace(refused, step=None, target="", failed_unit=None)


def _count_refusal(event: ConfigRefused, _status: Status, counters: Counters) -> None:
    if not event.repeated:
        counters.refused[event.reason] += 1


def _refused_event(event: ConfigRefused, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    if not event.repeated:
        yield NodeEvent("UpdateRefused", "Update", f"{event.reason}: {event.message}", warning=True)


def _done(status: Status, event: UpdateDone) -> Status:
    current = event.about.desired or status.goal
    # A problem with the config was about the previous one.
    others = other_problems(status, "config")
    done = replace(named(status, event), current=current, current_digest=event.digest, step=None, problems=others)
    return replace(done, partial=None)


def _done_words(event: UpdateDone, _status: Status) -> str:
    return f"{event.about.desired} is the current config" + (f" ({event.message})" if event.message else "")


def _done_event(event: UpdateDone, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    how = f", {event.message}" if event.message else ""
    yield NodeEvent("UpdateDone", "Update", f"{event.about.desired} is the current config{how}")


def _done_fields(event: UpdateDone, _status: Status) -> Mapping[str, Field]:
    return {"seconds": round(event.seconds, 3), "reboots": event.reboots, "digest": event.digest}


def _finished_words(event: UpdateFinished, _status: Status) -> str:
    entry = event.entry
    how = f": {entry.message}" if entry.message else ""
    return f"the update to {entry.to_name} has ended, {entry.outcome}{how}"


def _finished_fields(event: UpdateFinished, _status: Status) -> Mapping[str, Field]:
    entry = event.entry
    return {
        "update_id": entry.update_id,
        "current": entry.from_name,
        "desired": entry.to_name,
        "reason": entry.reason,
        "outcome": entry.outcome,
        "digest": entry.to_digest,
        "exit_code": event.exit_code,
    }


def _finished_event(event: UpdateFinished, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    # Every other end has an Event of its own.
    if event.entry.outcome in ENDED_UNCHANGED:
        yield NodeEvent("UpdateEnded", "Update", f"{event.entry.reason}: {event.entry.message}")


VIEWS = (
    EventView(
        event=HostDegraded,
        id="dc9303ab909a4400a5adf40a0faff680",
        priority=ERROR,
        sentence=lambda event, _: f"degraded, {event.reason}: {event.message}",
        fold=_degraded,
        node_events=_degraded_event,
    ),
    EventView(
        event=ConfigRefused,
        id="b8aa65eb86b14601947045a9ede029d8",
        priority=WARNING,
        level=lambda event: DEBUG if event.repeated else WARNING,
        sentence=lambda event, _: f"refused, {event.reason}: {event.message}",
        fold=_refused,
        count=_count_refusal,
        node_events=_refused_event,
    ),
    EventView(
        event=UpdateDone,
        id="1483f74e0dd840e6b4b681b5ac52db43",
        priority=NOTICE,
        sentence=_done_words,
        fields=_done_fields,
        fold=_done,
        node_events=_done_event,
    ),
    EventView(
        event=UpdateFinished,
        id="4ff1eb2bc1a246d98271c097d0f6a77f",
        priority=NOTICE,
        # Other ends have an entry of their own with the same text: UpdateDone, HostDegraded or RevertStarted.
        level=lambda event: NOTICE if event.entry.outcome in ENDED_UNCHANGED else DEBUG,
        sentence=_finished_words,
        fields=_finished_fields,
        node_events=_finished_event,
    ),
)
