# SPDX-License-Identifier: Apache-2.0
"""The event of the feature and its view, and the pods in the status.

Nothing of it is stored: a restarted agent asks for the pods again. What the last check found is in the status as long
as the status says that the work waits for it. So it is gone when the wait is over or goes on for another reason, when
the work is cancelled, and when the setting is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.core.enumerated import enumerated
from nodeagent.core.syslog import DEBUG
from nodeagent.errors import Cause
from nodeagent.features.busy_pods.reasons import BusyReason
from nodeagent.report.event_view import EventView
from nodeagent.report.exposition import Family, Sample
from nodeagent.report.part_view import PartView
from nodeagent.report.parts.registry import disruption_of
from nodeagent.report.status import Status
from nodeagent.update.ports.events import Event
from nodeagent.update.states import Phase

# Pods in the status. It has the number of all.
PODS: Final = 50

BUSY_PODS: Final = Family(
    "nodeagent_busy_pods", "Pods that an update or a maintenance waits for (busy_pods). Absent without such a wait."
)


@dataclass(frozen=True, slots=True, order=True)
class BusyPod:
    """``selector`` is the first one that matches the pod."""

    namespace: str
    name: str
    selector: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class HeldByPods:
    """``message`` is that of the wait. ``longest`` is ``busy_pods.longest_wait``."""

    pods: tuple[BusyPod, ...]
    longest: float

    @property
    def message(self) -> str:
        count = "1 pod holds" if len(self.pods) == 1 else f"{len(self.pods)} pods hold"
        bound = f", for {self.longest:g} s at most" if self.longest else ""
        return f"{count} the work on this node off{bound}: {enumerated(list(map(str, self.pods)))}"


@dataclass(frozen=True, slots=True)
class BusyPodsFound(Event):
    """What a check found. ``held`` None: no pod holds the work off any more."""

    held: HeldByPods | None


def _changed(status: Status, event: BusyPodsFound) -> Status:
    return status.without_part(HeldByPods) if event.held is None else status.with_part(event.held)


def shown(status: Status) -> Sequence[BusyPod]:
    """Return the pods for which an update or a maintenance waits by this status."""
    if (held := status.part(HeldByPods)) is None:
        return ()
    other = disruption_of(status)
    waits = status.phase is Phase.LEASING and status.reason == BusyReason.BUSY_PODS
    cause = str(Cause(BusyReason.BUSY_PODS, held.message))
    return held.pods if waits or (other is not None and other.waits == cause) else ()


def _to_json(held: HeldByPods, status: Status) -> Mapping[str, Any] | None:
    if not (pods := shown(status)):
        return None
    return {
        "count": len(pods),
        "pods": [{"namespace": pod.namespace, "name": pod.name, "selector": pod.selector} for pod in pods[:PODS]],
        "longest_wait": held.longest,
    }


def _samples(status: Status) -> Iterator[Sample]:
    if pods := shown(status):
        yield BUSY_PODS.at(len(pods))


def _words(event: BusyPodsFound) -> str:
    return event.held.message if event.held is not None else "no pod holds the work on this node off any more"


VIEWS: Final = (
    EventView(
        event=BusyPodsFound,
        id="4929c1161ed14939ad1f39319731a359",
        priority=DEBUG,
        # Each check, once a minute. What waits has its own entry.
        level=lambda event: DEBUG if event.held is None else None,
        sentence=lambda event, _: f"busy pods: {_words(event)}",
        fold=_changed,
    ),
)

STATUS: Final = (PartView(part=HeldByPods, key="busy_pods", to_json=_to_json, families=(BUSY_PODS,), samples=_samples),)
