# SPDX-License-Identifier: Apache-2.0
"""The view of the event of the feature, and of its part of the status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.core.syslog import NOTICE, WARNING
from nodeagent.features.drift.decide import Drift, describe_drift
from nodeagent.features.drift.events import DriftChanged
from nodeagent.reasons import Reason
from nodeagent.report.event_view import EventView, Field
from nodeagent.report.exposition import Family, Sample
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.part_view import NodeCondition, PartView, TypedProperty
from nodeagent.report.status import Status

DRIFTED = Family("nodeagent_drifted", "1 if managed files or units differ from the current config.")
# The oldest one, because an alert is about how long a host has differed.
DRIFT_START = Family(
    "nodeagent_drift_start_timestamp_seconds",
    "Time when the oldest of these differences was found. Absent without drift.",
)


@dataclass(frozen=True, slots=True)
class DriftStatus:
    """There is at least one entry."""

    entries: Drift


def drift_of(status: Status) -> Drift:
    part = status.part(DriftStatus)
    return part.entries if part is not None else ()


def _fields(event: DriftChanged, _status: Status) -> Mapping[str, Field]:
    return {"current": event.config, "entries": len(event.drift), "solved": int(not event.drift)}


def _node_events(event: DriftChanged, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    reason = "ConfigDrift" if event.drift else "ConfigDriftEnded"
    yield NodeEvent(reason, "Compare", event.message, warning=bool(event.drift))


def _changed(status: Status, event: DriftChanged) -> Status:
    return status.with_part(DriftStatus(tuple(event.drift))) if event.drift else status.without_part(DriftStatus)


VIEWS = (
    EventView(
        event=DriftChanged,
        id="e22d98ab99a44636927bdf84245f3d28",
        priority=WARNING,
        # The end of a drift deserves no warning.
        level=lambda event: WARNING if event.drift else NOTICE,
        sentence=lambda event, _: f"drift: {event.message}",
        fields=_fields,
        fold=_changed,
        node_events=_node_events,
    ),
)


def _samples(status: Status) -> Iterator[Sample]:
    entries = drift_of(status)
    yield DRIFTED.at(bool(entries) or status.reason == Reason.DRIFTED)
    # Times of RFC 3339 in UTC sort as text.
    if (since := parse_time(min((entry.since for entry in entries), default=""))) is not None:
        yield DRIFT_START.at(since)


STATUS = (
    PartView(
        part=DriftStatus,
        key="drift",
        to_json=lambda part, _: msgspec.to_builtins(list(part.entries)),
        absent=list,
        phrase=lambda part, _: f"drift: {describe_drift(part.entries)}",
        properties={
            "DriftedEntries": TypedProperty(
                "u", "the number of entries that differ from the current config", lambda status: len(drift_of(status))
            )
        },
        condition=NodeCondition(
            kind="ConfigDrift",
            holds="EntriesDiffer",
            otherwise="AsConfigured",
            message=lambda status: describe_drift(drift_of(status)),
        ),
        families=(DRIFTED, DRIFT_START),
        samples=_samples,
    ),
)
