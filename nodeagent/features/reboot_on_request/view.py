# SPDX-License-Identifier: Apache-2.0
"""The views of the events of the feature, and of its parts of the status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodeagent.core.syslog import DEBUG, NOTICE
from nodeagent.features.reboot_on_request.decide import (
    NOTE,
    RebootRequest,
    RebootRequestChanged,
    RebootRequiredChanged,
    RebootRequirement,
    from_text,
)
from nodeagent.report.event_view import EventView, Field
from nodeagent.report.exposition import Family, Sample
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.part_view import NodeCondition, PartView
from nodeagent.report.status import Status
from nodeagent.update.states import Phase

REQUEST = Family("nodeagent_reboot_request", "1 while a reboot is requested. Absent without a request.", ("source",))
REQUIRED = Family("nodeagent_reboot_required", "1 while /run/reboot-required exists, otherwise 0.")


@dataclass(frozen=True, slots=True)
class RebootRequestStatus:
    """``waits`` is the text of the cause for which it cannot begin."""

    request: RebootRequest
    waits: str = ""


def _changed(status: Status, event: RebootRequestChanged) -> Status:
    if event.request is None:
        return status.without_part(RebootRequestStatus)
    return status.with_part(RebootRequestStatus(event.request, event.waits))


def _fields(event: RebootRequestChanged, _status: Status) -> Mapping[str, Field]:
    request = event.request
    if request is None:
        return {"waits": event.waits}
    return {"waits": event.waits, "requester": request.requester, "why": request.purpose, "source": str(request.source)}


def _node_events(event: RebootRequestChanged, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    if event.message:
        yield NodeEvent("RebootRequested" if event.request is not None else "RebootAnswered", "Reboot", event.message)


def _required_changed(status: Status, event: RebootRequiredChanged) -> Status:
    if event.requirement is None:
        return status.without_part(RebootRequirement)
    return status.with_part(event.requirement)


def _required_words(requirement: RebootRequirement | None) -> str:
    if requirement is None:
        return "no reboot is required any more"
    names = ", ".join(requirement.packages)
    return f"the host requires a reboot{f': {names}' if names else ''}"


VIEWS = (
    EventView(
        event=RebootRequestChanged,
        id="60f23442ea764a3894676bbea9dcd580",
        priority=NOTICE,
        level=lambda event: NOTICE if event.message else DEBUG,
        sentence=lambda event, _: event.message or f"the requested reboot waits: {event.waits or 'no request'}",
        fields=_fields,
        fold=_changed,
        node_events=_node_events,
    ),
    EventView(
        event=RebootRequiredChanged,
        id="135610069b564da682a4045a678f32b5",
        priority=NOTICE,
        sentence=lambda event, _: _required_words(event.requirement),
        fold=_required_changed,
    ),
)


def _to_json(part: RebootRequestStatus, status: Status) -> Mapping[str, Any]:
    request = part.request
    # While its update is under way, the status of the update says what that waits for.
    resting = status.phase in (Phase.IDLE, Phase.DEGRADED)
    return {
        "id": request.id,
        "source": str(request.source),
        "requester": request.requester,
        "reason": request.purpose,
        "since": request.since,
        "at_once": request.at_once,
        "boot_staged": request.boot_staged,
        "options": dict(request.options),
        "message": part.waits if resting else "",
    }


def _stored(note: Callable[[str], str]) -> RebootRequestStatus | None:
    pending = from_text(note(NOTE)).pending
    return RebootRequestStatus(pending) if pending is not None else None


def _request_samples(status: Status) -> Iterator[Sample]:
    if (part := status.part(RebootRequestStatus)) is not None:
        yield REQUEST.at(1, part.request.source)


def _required_samples(status: Status) -> Iterator[Sample]:
    yield REQUIRED.at(int(status.part(RebootRequirement) is not None))


def _condition(status: Status) -> str:
    part = status.part(RebootRequirement)
    return _required_words(part) if part is not None else ""


STATUS = (
    PartView(
        part=RebootRequestStatus,
        key="reboot_request",
        to_json=_to_json,
        phrase=lambda part, _: part.request.words,
        stored=_stored,
        families=(REQUEST,),
        samples=_request_samples,
    ),
    PartView(
        part=RebootRequirement,
        key="reboot_required",
        to_json=lambda part, _: {"packages": list(part.packages)},
        phrase=lambda part, _: _required_words(part),
        condition=NodeCondition(kind="RebootRequired", holds="FileExists", otherwise="NoFile", message=_condition),
        families=(REQUIRED,),
        samples=_required_samples,
    ),
)
