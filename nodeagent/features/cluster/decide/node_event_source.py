# SPDX-License-Identifier: Apache-2.0
"""The source of the Kubernetes Events about the Node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.status import Status
from nodeagent.report.views.registry import view_of
from nodeagent.update.ports.events import Event

# Characters of a note, for which the API allows 1024 bytes.
LONGEST: Final = 1000


class NodeEventSource:
    """Derives Kubernetes Events from the events of the agent."""

    def __init__(self) -> None:
        self._memory = NodeMemory()

    def begin(self, status: Status) -> None:
        """Set the state at the start of the process. It gives no Event, because the previous process reported it."""
        self._memory.status, self._memory.phase = status, status.phase

    def events_for(self, event: Event, status: Status, now: float) -> Sequence[NodeEvent]:
        """Return the Events for ``event``. ``status`` is the status after it, ``now`` the steady clock in seconds."""
        self._memory.now = now
        node_events = list(view_of(event).node_events(event, status, self._memory))
        self._memory.status = status
        return [replace(node_event, note=node_event.note[:LONGEST]) for node_event in node_events]
