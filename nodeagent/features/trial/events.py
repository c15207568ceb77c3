# SPDX-License-Identifier: Apache-2.0
"""The events of the feature and their views, and the trial in the status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.core.syslog import DEBUG, NOTICE, WARNING
from nodeagent.core.times import add_seconds
from nodeagent.features.trial.decide import NOTE, Trial, from_text, in_words
from nodeagent.report.event_view import EventView, Field
from nodeagent.report.exposition import Family, Sample
from nodeagent.report.part_view import PartView
from nodeagent.report.status import Status
from nodeagent.update.ports.events import UpdateEvent
from nodeagent.update.states import Phase

TRIAL_END: Final = Family(
    "nodeagent_trial_end_timestamp_seconds", "Time at which the config on trial is taken back. Absent without one."
)


@dataclass(frozen=True, slots=True)
class TrialEvent(UpdateEvent):
    trial: Trial


@dataclass(frozen=True, slots=True)
class TrialBegun(TrialEvent):
    """``until`` is RFC 3339, by the present wall clock. ``again``: it is only shown again."""

    until: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class TrialEnding(TrialEvent):
    """It ends soon, and it is not kept yet."""


@dataclass(frozen=True, slots=True)
class TrialKept(TrialEvent):
    pass


@dataclass(frozen=True, slots=True)
class TrialNotKept(TrialEvent):
    pass


@dataclass(frozen=True, slots=True)
class TrialStatus:
    """``until`` is RFC 3339."""

    trial: Trial
    until: str


def _fields(event: TrialEvent, _status: Status) -> Mapping[str, Field]:
    trial = event.trial
    return {
        "seconds": trial.seconds,
        "requester": trial.requester,
        "kept_by": trial.kept_by,
        "ended_by": trial.ended_by,
    }


def _begun(status: Status, event: TrialBegun) -> Status:
    return status.with_part(TrialStatus(event.trial, event.until))


def _begun_words(event: TrialBegun) -> str:
    trial = event.trial
    back = f"to {trial.back}" if trial.back else "to its previous state"
    return (
        f"{trial.config} is on trial for {in_words(trial.seconds)}: without nodeagent keep, the host goes back {back}"
    )


VIEWS: Final = (
    EventView(
        event=TrialBegun,
        id="07a974488f1f43de89e153f20d8bb7a2",
        priority=NOTICE,
        level=lambda event: DEBUG if event.again else NOTICE,
        sentence=lambda event, _: _begun_words(event),
        fields=lambda event, status: {**_fields(event, status), "until": event.until},
        fold=_begun,
    ),
    EventView(
        event=TrialEnding,
        id="c8dd670778044b4db5c503ee4e6a8a21",
        priority=WARNING,
        sentence=lambda event, _: f"the trial of {event.trial.config} ends soon, and no login has kept it",
        fields=_fields,
    ),
    EventView(
        event=TrialKept,
        id="1b4b6cd89fce43db8694e0cc18119899",
        priority=NOTICE,
        sentence=lambda event, _: f"{event.trial.config} is kept by {event.trial.kept_by}",
        fields=_fields,
    ),
    EventView(
        event=TrialNotKept,
        id="28c9ccbd59df45bfbfda53c519e57500",
        priority=WARNING,
        sentence=lambda event, _: f"{event.trial.config} is taken back: {event.trial.end.message}",
        fields=_fields,
    ),
)


def _lasts(part: TrialStatus, status: Status) -> bool:
    # A service of the host that does not answer makes the status degraded, and the trial goes on.
    return part.trial.update_id == status.update_id and status.phase in (Phase.VERIFYING, Phase.DEGRADED)


def _to_json(part: TrialStatus, status: Status) -> Mapping[str, Any] | None:
    """What the store has of a trial that is over is no trial."""
    trial = part.trial
    if not _lasts(part, status):
        return None
    # The time that is left is made of ``until`` by the client, whose clock goes on.
    return {
        "config": trial.config,
        "back": trial.back,
        "seconds": trial.seconds,
        "since": trial.since,
        "until": part.until,
        "requester": trial.requester,
        "kept_by": trial.kept_by,
    }


def _stored(note: Callable[[str], str]) -> TrialStatus | None:
    trial = from_text(note(NOTE))
    try:
        # Another boot began it again, which only a running daemon knows.
        return TrialStatus(trial, add_seconds(trial.since, trial.seconds)) if trial is not None else None
    except ValueError:
        return None


def _samples(status: Status) -> Iterator[Sample]:
    part = status.part(TrialStatus)
    if part is not None and (until := parse_time(part.until)) is not None:
        yield TRIAL_END.at(until)


STATUS: Final = (
    PartView(
        part=TrialStatus,
        key="trial",
        to_json=_to_json,
        lasts=_lasts,
        phrase=lambda part, _: f"on trial until {part.until}",
        stored=_stored,
        families=(TRIAL_END,),
        samples=_samples,
    ),
)
