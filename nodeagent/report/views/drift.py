# SPDX-License-Identifier: Apache-2.0
"""The view of the event of drift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nodeagent.core.syslog import NOTICE, WARNING
from nodeagent.report.event_view import EventView, Field
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.status import Status
from nodeagent.update.ports.events import DriftChanged


def _fields(event: DriftChanged, _status: Status) -> Mapping[str, Field]:
    return {"current": event.config, "entries": len(event.drift), "solved": int(not event.drift)}


def _node_events(event: DriftChanged, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    reason = "ConfigDrift" if event.drift else "ConfigDriftEnded"
    yield NodeEvent(reason, "Compare", event.message, warning=bool(event.drift))


VIEWS = (
    EventView(
        event=DriftChanged,
        id="e22d98ab99a44636927bdf84245f3d28",
        priority=WARNING,
        # The end of a drift deserves no warning.
        level=lambda event: WARNING if event.drift else NOTICE,
        sentence=lambda event, _: f"drift: {event.message}",
        fields=_fields,
        fold=lambda status, event: replace(status, drift=tuple(event.drift)),
        node_events=_node_events,
    ),
)
