# SPDX-License-Identifier: Apache-2.0
"""The view of the event of safe parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nodeagent.core.syslog import NOTICE
from nodeagent.report.event_view import EventView, Field
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.status import Status
from nodeagent.report.views.folding import named
from nodeagent.update.ports.events import SafePartsApplied


def _fields(event: SafePartsApplied, _status: Status) -> Mapping[str, Field]:
    partial = event.partial
    return {"reason": partial.cause.reason, "applied": len(partial.applied), "waits": len(partial.waits)}


def _words(event: SafePartsApplied) -> str:
    return f"{event.about.desired}: {event.partial.words}"


def _node_events(event: SafePartsApplied, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    yield NodeEvent("SafePartsApplied", "Update", _words(event))


VIEWS = (
    EventView(
        event=SafePartsApplied,
        id="f431a540fe82453b9150e198c0b65b5a",
        priority=NOTICE,
        sentence=lambda event, _: _words(event),
        fields=_fields,
        fold=lambda status, event: replace(named(status, event), step=None, partial=event.partial),
        node_events=_node_events,
    ),
)
