# SPDX-License-Identifier: Apache-2.0
"""The event of the feature, and its view."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodeagent.core.syslog import NOTICE
from nodeagent.report.event_view import EventView
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.status import Status
from nodeagent.update.ports.events import Event


@dataclass(frozen=True, slots=True)
class DegradedUncordoned(Event):
    """The cordon of an update that ended half-way was removed. ``message`` is that of the status from now on."""

    update_id: str
    message: str


def _uncordoned(status: Status, event: DegradedUncordoned) -> Status:
    return replace(status, message=event.message)


def _node_events(event: DegradedUncordoned, _status: Status, _memory: NodeMemory) -> Iterator[NodeEvent]:
    yield NodeEvent("DegradedUncordoned", "Uncordon", event.message, warning=True)


VIEWS = (
    EventView(
        event=DegradedUncordoned,
        id="4fb6e53783384aeb99a8ca5c2bfe4486",
        priority=NOTICE,
        sentence=lambda event, _: event.message,
        fields=lambda event, _: {"update_id": event.update_id},
        fold=_uncordoned,
        node_events=_node_events,
    ),
)
