"""What the cluster is told of this node while things happen: one state for its conditions, and notices, which become
Kubernetes Events.

A notice is for the person who looks at a node and asks what goes on there, so it is rare: that something began or
ended, that it waits and for whom, that it went wrong. Each says what is so, not what was meant to be: a drain that was
given up is not reported as done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodeagent.core.coordination.drain import Remaining, is_blocked
from nodeagent.core.coordination.maintenance import Maintenance, MaintenanceState
from nodeagent.core.report.conditions import NodeState
from nodeagent.core.report.status import Status
from nodeagent.core.update.events import Event, EventKind
from nodeagent.core.update.outcome import ENDED_UNCHANGED
from nodeagent.core.update.phase import Phase
from nodeagent.reasons import Reason

__all__ = ["BLOCKED_FOR", "LONGEST", "Notice", "Notices", "node_state"]

BLOCKED_FOR = 30.0
"""Seconds after which a pod that does not go is worth a notice: a budget often allows it a moment later."""

SHOWN = 10  # pods that are blocked, each with a notice of its own; the rest is in the condition and in the status
LONGEST = 1000  # characters; the API takes 1024 bytes
OURS = "nodeagent"


@dataclass(frozen=True, slots=True)
class Notice:
    """``reason`` and ``action`` are CamelCase words of the Kubernetes Event; ``action`` is what we did or do."""

    reason: str
    action: str
    note: str
    warning: bool = False


def node_state(status: Status) -> NodeState:
    """What the conditions of the node say. A person's maintenance comes before an update, which waits for it."""
    note = status.maintenance
    if note is not None:
        state = note.state(status.boot_id)
        draining = state is MaintenanceState.DRAINING
        return NodeState(
            requester=note.requester,
            reason=note.reason + (f" (until {note.until})" if note.until else ""),
            maintenance=True,
            planned=state is MaintenanceState.PLANNED,
            draining=draining,
            drained=bool(note.drained),
            remaining=tuple(status.remaining or ()) if draining else (),
        )
    draining = status.phase is Phase.DRAINING
    planned = status.phase in (Phase.STAGING, Phase.LEASING)
    if not (draining or planned or status.drained):
        return NodeState()
    return NodeState(
        requester=OURS,
        reason=f"update to {status.goal}",
        planned=planned,
        draining=draining,
        drained=status.drained,
        remaining=tuple(status.remaining or ()) if draining else (),
    )


class Notices:
    """Follows the events; ``of`` gives what is to be told of one. ``now`` is a steady clock in seconds."""

    def __init__(self) -> None:
        self._maintenance: tuple[Maintenance | None, MaintenanceState | None] = (None, None)
        self._phase: Phase | None = None
        self._blocked: dict[tuple[str, str], float] = {}

    def begin(self, status: Status) -> None:
        """What this process found: it was told when it began."""
        note = status.maintenance
        self._maintenance = (note, note.state(status.boot_id) if note is not None else None)
        self._phase = status.phase

    def of(self, event: Event, status: Status, now: float) -> Sequence[Notice]:
        """``status`` is that after the event."""
        return [
            Notice(each.reason, each.action, each.note[:LONGEST], each.warning) for each in self._of(event, status, now)
        ]

    def _of(self, event: Event, status: Status, now: float) -> Iterator[Notice]:
        match event.kind:
            case EventKind.UPDATE_STARTED:
                yield Notice("UpdateStarted", "Update", f"update to {event.desired}: {event.message}")
            case EventKind.UPDATE_DONE:
                how = f", {event.message}" if event.message else ""
                yield Notice("UpdateDone", "Update", f"{event.desired} is in force{how}")
            case EventKind.WAITING:
                yield Notice("UpdateWaiting", "Wait", f"{event.reason}: {event.message}")
            case EventKind.FALLBACK:
                yield Notice("FallbackReboot", "Reboot", f"{event.reason}: {event.message}", warning=True)
            case EventKind.REVERTING:
                yield Notice("UpdateReverting", "Revert", f"{event.reason}: {event.message}", warning=True)
            case EventKind.DEGRADED:
                reason = "UpdateReverted" if event.reason == Reason.REVERTED else "UpdateDegraded"
                yield Notice(reason, "Update", f"{event.reason}: {event.message}", warning=True)
            case EventKind.UPDATE_FINISHED if event.fields.get("outcome") in ENDED_UNCHANGED:
                yield Notice("UpdateEnded", "Update", f"{event.reason}: {event.message}")
            case EventKind.REFUSED if not event.fields.get("often"):
                yield Notice("UpdateRefused", "Update", f"{event.reason}: {event.message}", warning=True)
            case EventKind.PHASE:
                yield from self._entered(event, status)
            case EventKind.DRAIN:
                yield from self._drain(status, now)
            case EventKind.MAINTENANCE:
                yield from self._maintained(status)
            case _:
                pass

    def _entered(self, event: Event, status: Status) -> Iterator[Notice]:
        before, self._phase = self._phase, event.phase
        if event.phase is before:
            return
        if event.phase is Phase.DRAINING:
            self._blocked.clear()
            yield Notice("DrainRequested", "Drain", f"{OURS}: update to {status.goal}")
        elif before is Phase.DRAINING and status.drained:
            yield Notice("Drained", "Drain", f"for the update to {status.goal}")
        if event.phase is Phase.REBOOTING:
            yield Notice("Rebooting", "Reboot", event.message or f"for the update to {status.goal}")

    def _drain(self, status: Status, now: float) -> Iterator[Notice]:
        stuck = {(pod.namespace, pod.name): pod for pod in status.remaining or () if is_blocked(pod)}
        self._blocked = {key: self._blocked.get(key, now) for key in stuck}
        late = [key for key, since in self._blocked.items() if now - since >= BLOCKED_FOR]
        for key in sorted(late)[:SHOWN]:
            yield _blocked(stuck[key])

    def _maintained(self, status: Status) -> Iterator[Notice]:
        note, (before, was) = status.maintenance, self._maintenance
        state = note.state(status.boot_id) if note is not None else None
        self._maintenance = (note, state)
        if note is None:
            if before is not None and before.began:
                yield Notice("MaintenanceEnded", "Maintain", f"{before.words} ({before.ended or 'over'})")
            return
        if before is not None and not before.drained and note.drained:
            yield Notice("Drained", "Drain", f"for the maintenance by {note.words}")
        if note.problem and (before is None or note.problem != before.problem):
            yield Notice("MaintenanceProblem", "Maintain", f"{note.problem} (for {note.words})", warning=True)
        if state is was:
            return
        match state:
            case MaintenanceState.PLANNED:
                yield Notice("MaintenancePlanned", "Maintain", note.words)
            case MaintenanceState.DRAINING:
                self._blocked.clear()
                yield from _started(note, was)
                yield Notice("DrainRequested", "Drain", note.words)
            case MaintenanceState.POWERING_OFF:
                yield from _started(note, was)
                yield Notice("PoweringOff", "PowerOff", note.words)
            case MaintenanceState.UNDER_WAY:
                yield from _started(note, was)
            case MaintenanceState.ENDING:
                yield Notice(Reason.MAINTENANCE_ENDING, "Maintain", f"{note.words} ({note.ended})")
            case None:
                pass


def _started(note: Maintenance, was: MaintenanceState | None) -> Iterator[Notice]:
    """Not for one that this process found: it was told when it began."""
    if was is MaintenanceState.PLANNED:
        until = f" until {note.until}" if note.until else ""
        yield Notice("MaintenanceStarted", "Maintain", note.words + until)


def _blocked(pod: Remaining) -> Notice:
    return Notice("DrainBlocked", "Evict", f"{pod.namespace}/{pod.name}: {pod.why}", warning=True)
