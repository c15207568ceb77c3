# SPDX-License-Identifier: Apache-2.0
"""The view of one kind of event: its entry of the journal, and how it changes the status, the counters and the node.

A kind of event is its dataclass, which the engine or a feature emits, and one view. The functions of a view are pure,
except that ``count`` and ``node_events`` write what they keep into the object that they get.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from nodeagent.report.counters import Counters
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.status import Status
from nodeagent.update.ports.events import Event

E = TypeVar("E", bound=Event)

# A field of an entry of the journal. None and "" are omitted.
Field = str | int | float | None


def _same_status(status: Status, _event: Event) -> Status:
    return status


def _no_fields(_event: Event, _status: Status) -> Mapping[str, Field]:
    return {}


def _not_counted(_event: Event, _status: Status, _counters: Counters) -> None:
    pass


def _no_node_events(_event: Event, _status: Status, _memory: NodeMemory) -> Iterable[NodeEvent]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView(Generic[E]):
    """``fold`` gets the status before the event, the other functions get the status after it.

    ``id`` is the MESSAGE_ID. It is an interface: alerts and `journalctl MESSAGE_ID=...` depend on it. Never change or
    reuse one; a new kind gets a new random id (`systemd-id128 new`) and an entry of the catalog in systemd/.
    """

    event: type[E]
    id: str
    # Of syslog(3), for most events of this kind.
    priority: int
    # What happened, to which object, and the cause of a failure.
    sentence: Callable[[E, Status], str]
    # The priority of one event, if it depends on the event. None: it has no entry in the journal.
    level: Callable[[E], int | None] | None = None
    # The fields that only this kind has.
    fields: Callable[[E, Status], Mapping[str, Field]] = _no_fields
    fold: Callable[[Status, E], Status] = _same_status
    count: Callable[[E, Status, Counters], None] = _not_counted
    # The Kubernetes Events about the Node.
    node_events: Callable[[E, Status, NodeMemory], Iterable[NodeEvent]] = _no_node_events

    def level_of(self, event: E) -> int | None:
        """Return the priority of the entry of ``event``; None without an entry."""
        return self.priority if self.level is None else self.level(event)
