# SPDX-License-Identifier: Apache-2.0
"""The view of the event of a drain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from nodeagent.core.coordination.drain import Remaining, is_blocked
from nodeagent.core.syslog import DEBUG, INFO
from nodeagent.report.event_view import EventView, Field
from nodeagent.report.node_events import NodeEvent, NodeMemory
from nodeagent.report.status import Status
from nodeagent.update.ports.events import DrainAdvanced

# Pods in one line. The status has all of them.
PODS: Final = 5

# Seconds after which a pod that cannot be evicted is an Event: a disruption budget often allows it a moment later.
BLOCKED_FOR: Final = 30.0

# Blocked pods with an Event of their own. The others are in the condition and in the status.
MAX_BLOCKED: Final = 10


def _words(event: DrainAdvanced, _status: Status) -> str:
    remaining = event.remaining
    shown = "; ".join(f"{pod.namespace}/{pod.name}: {pod.why}" for pod in remaining[:PODS])
    return f"drain: {len(remaining)} pods remaining: {shown}" if remaining else "drain: complete"


def _fields(event: DrainAdvanced, status: Status) -> Mapping[str, Field]:
    return {"update_id": status.update_id, "left": len(event.remaining), "by": event.deadline, "then": event.then}


def _advanced(status: Status, event: DrainAdvanced) -> Status:
    return replace(status, remaining=tuple(event.remaining), drain_by=event.deadline, drain_then=event.then)


def _node_events(_event: DrainAdvanced, status: Status, memory: NodeMemory) -> Iterator[NodeEvent]:
    stuck = {(pod.namespace, pod.name): pod for pod in status.remaining or () if is_blocked(pod)}
    memory.blocked = {key: memory.blocked.get(key, memory.now) for key in stuck}
    late = [key for key, since in memory.blocked.items() if memory.now - since >= BLOCKED_FOR]
    # With each report of the drain: the writer makes one series of them.
    for key in sorted(late)[:MAX_BLOCKED]:
        yield _blocked(stuck[key])


def _blocked(pod: Remaining) -> NodeEvent:
    return NodeEvent("DrainBlocked", "Evict", f"{pod.namespace}/{pod.name}: {pod.why}", warning=True)


VIEWS = (
    EventView(
        event=DrainAdvanced,
        id="0863024d107b49b1bcfdbad7e246d977",
        priority=INFO,
        # The status has every sample, and the journal each change.
        level=lambda event: DEBUG if event.routine else INFO,
        sentence=_words,
        fields=_fields,
        fold=_advanced,
        node_events=_node_events,
    ),
)
