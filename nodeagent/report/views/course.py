# SPDX-License-Identifier: Apache-2.0
"""Views of the events of the course of an update. Those of its end are in ``ends``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nodeagent.core.boot import RebootKind
from nodeagent.core.syslog import INFO, NOTICE, WARNING
from nodeagent.report.counters import Counters
from nodeagent.report.event_view import EventView
from nodeagent.report.node_events import OWN_NAME, NodeEvent, NodeMemory
from nodeagent.report.status import Status
from nodeagent.report.views.folding import caused, entered, named
from nodeagent.update.ports.events import (
    FallbackChosen,
    PhaseEntered,
    RevertStarted,
    UpdateCancelled,
    UpdateResumed,
    UpdateStarted,
    UpdateWaiting,
)
from nodeagent.update.states import Phase


def _started(status: Status, event: UpdateStarted) -> Status:
    return entered(status, event, "", f"plan: {event.actions}", names_desired=True)


def _started_event(event: UpdateStarted, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    yield NodeEvent("UpdateStarted", "Update", f"update to {event.about.desired}: {event.actions}")


def _phase_events(event: PhaseEntered, status: Status, memory: NodeMemory) -> Iterator[NodeEvent]:
    before, memory.phase = memory.phase, event.about.phase
    # A phase is entered again when its reason changes.
    if memory.phase is before:
        return
    if memory.phase is Phase.DRAINING:
        yield NodeEvent("DrainRequested", "Drain", f"{OWN_NAME}: update to {status.goal}")
    elif before is Phase.DRAINING and status.drained:
        yield NodeEvent("Drained", "Drain", f"for the update to {status.goal}")
    if memory.phase is Phase.REBOOTING:
        yield NodeEvent("Rebooting", "Reboot", event.message or f"for the update to {status.goal}")


def _waits(status: Status, event: UpdateWaiting) -> Status:
    return replace(caused(status, event), brief=event.brief)


def _count_wait(event: UpdateWaiting, _status: Status, counters: Counters) -> None:
    if not event.routine:
        counters.waits[str(event.about.phase), event.reason] += 1


def _waiting_event(event: UpdateWaiting, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    # In a large fleet a slot changes its holder every few seconds, which is no news of each Node that waits.
    if not event.routine:
        yield NodeEvent("UpdateWaiting", "Wait", f"{event.reason}: {event.message}")


def _cancelled_event(event: UpdateCancelled, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    yield NodeEvent("UpdateCancelled", "Cancel", event.message)


def _fallback_words(event: FallbackChosen, _status: Status) -> str:
    return f"falling back to a {'soft ' if event.kind is RebootKind.SOFT else ''}reboot: {event.message}"


def _fallback_event(event: FallbackChosen, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    # The kubelet reports no reboot of its own, because it compares boot IDs.
    soft = "a soft reboot, which keeps the boot ID of the Node, because " if event.kind is RebootKind.SOFT else ""
    yield NodeEvent("FallbackReboot", "Reboot", f"{soft}{event.reason}: {event.message}", warning=True)


def _revert_words(event: RevertStarted, _status: Status) -> str:
    return f"reverting to {event.about.current or 'the state before the update'}: {event.message}"


def _revert_event(event: RevertStarted, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    yield NodeEvent("UpdateReverting", "Revert", f"{event.reason}: {event.message}", warning=True)


VIEWS = (
    EventView(
        event=UpdateStarted,
        id="690fb44e31b3461ea75375c2d5e95ee5",
        priority=NOTICE,
        sentence=lambda event, _: (
            f"updating from {event.about.current or 'nothing'} to {event.about.desired}: {event.actions}"
        ),
        fields=lambda event, _: {"writes": event.writes},
        fold=_started,
        node_events=_started_event,
    ),
    EventView(
        event=UpdateResumed,
        id="cc77d93908c34c608b2cbf9becf9b484",
        priority=NOTICE,
        sentence=lambda event, _: f"resuming the update to {event.about.desired}: {event.decision}",
        fold=named,
    ),
    EventView(
        event=PhaseEntered,
        id="94e088f9da054772911971e9e2e69f72",
        priority=INFO,
        sentence=lambda event, _: f"{event.about.phase}" + (f": {event.message}" if event.message else ""),
        fold=caused,
        node_events=_phase_events,
    ),
    EventView(
        event=UpdateWaiting,
        id="fcd2e72b137741b99207ed61c2fe5b2e",
        priority=NOTICE,
        level=lambda event: None if event.routine else NOTICE,
        sentence=lambda event, _: event.message,
        fold=_waits,
        count=_count_wait,
        node_events=_waiting_event,
    ),
    EventView(
        event=UpdateCancelled,
        id="60ce15ac9f6e4f1381458699acacd170",
        priority=NOTICE,
        sentence=lambda event, _: event.message,
        fold=named,
        node_events=_cancelled_event,
    ),
    EventView(
        event=FallbackChosen,
        id="faebc5d4fdc44279a17a0896b2d695c2",
        priority=WARNING,
        sentence=_fallback_words,
        fold=caused,
        node_events=_fallback_event,
    ),
    EventView(
        event=RevertStarted,
        id="0d309aa13ab34fd0ac02b2610e2e1832",
        priority=WARNING,
        sentence=_revert_words,
        fold=caused,
        node_events=_revert_event,
    ),
)
