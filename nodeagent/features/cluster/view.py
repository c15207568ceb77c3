# SPDX-License-Identifier: Apache-2.0
"""The view of the event of a drain, and of its part of the status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nodeagent.core.syslog import DEBUG, INFO
from nodeagent.features.cluster.decide.drain import Remaining, is_blocked, remedy
from nodeagent.features.cluster.events import DrainAdvanced, DrainProgress, remaining_of
from nodeagent.report.event_view import EventView, Field
from nodeagent.report.exposition import Family, Sample
from nodeagent.report.node_events import OWN_NAME, NodeEvent, NodeMemory
from nodeagent.report.part_view import PartView
from nodeagent.report.parts.registry import disruption_of
from nodeagent.report.status import Status
from nodeagent.update.states import Phase

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
    return status.with_part(DrainProgress(tuple(event.remaining), event.deadline, event.then))


@dataclass(slots=True)
class BlockedPods:
    # Since when each pod, by namespace and name, blocks the drain.
    since: dict[tuple[str, str], float] = field(default_factory=dict)


def _node_events(_event: DrainAdvanced, status: Status, memory: NodeMemory) -> Iterator[NodeEvent]:
    blocked = memory.part(BlockedPods)
    if memory.status.part(DrainProgress) is None:
        # A pod that was blocked in an earlier drain has its time again.
        blocked.since.clear()
    stuck = {(pod.namespace, pod.name): pod for pod in remaining_of(status) if is_blocked(pod)}
    blocked.since = {key: blocked.since.get(key, memory.now) for key in stuck}
    late = [key for key, since in blocked.since.items() if memory.now - since >= BLOCKED_FOR]
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


def _lasts(_progress: DrainProgress, status: Status) -> bool:
    # The pods of an earlier drain say nothing about the next one.
    other = disruption_of(status)
    return status.phase is Phase.DRAINING or (other is not None and other.draining)


def _to_json(progress: DrainProgress, status: Status) -> Mapping[str, Any]:
    """Return the drain as JSON data: requester, reason, times, and remaining pods, blocked ones first."""

    def pod_to_dict(pod: Remaining) -> Mapping[str, Any]:
        about = {"namespace": pod.namespace, "name": pod.name, "why": pod.why}
        return {**about, "blocked": is_blocked(pod), "hint": remedy(pod)}

    other = disruption_of(status) if status.phase is not Phase.DRAINING else None
    pods = sorted(progress.remaining, key=lambda pod: not is_blocked(pod))
    return {
        "requester": other.requester if other is not None else OWN_NAME,
        "reason": other.reason if other is not None else f"update to {status.goal}",
        "since": other.since if other is not None else status.since,
        "deadline": progress.deadline,
        "then": progress.then,
        "remaining": [pod_to_dict(pod) for pod in pods],
    }


DRAIN_PODS: Final = Family("nodeagent_drain_pods", "Pods that a drain waits for. Absent without a drain.")


def _samples(status: Status) -> Iterator[Sample]:
    if (progress := status.part(DrainProgress)) is not None:
        yield DRAIN_PODS.at(len(progress.remaining))


STATUS: Final = (
    PartView(
        part=DrainProgress,
        key="drain",
        to_json=_to_json,
        lasts=_lasts,
        families=(DRAIN_PODS,),
        samples=_samples,
    ),
)
