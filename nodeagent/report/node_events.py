# SPDX-License-Identifier: Apache-2.0
"""The node conditions and the Kubernetes Events of an update or a maintenance.

The conditions about disruption are those that Kubernetes 1.37 defines (KEP-5683), and ``ConfigDrift`` of our own. Older
API servers accept any type, and `kubectl describe node` shows them: requester, reason, start, remaining pods. They are
information, not locks. The client that sets a condition clears it, so all of them are written from one state.

An Event answers the question of an operator who runs ``kubectl describe node``, so Events are rare: something began or
ended, it waits and for whom, it failed. Each reports a fact, not a plan: a drain that was given up is not reported as
done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nodeagent.core.boot import RebootKind
from nodeagent.core.coordination.drain import Remaining, is_blocked
from nodeagent.core.coordination.kube_objects import Condition
from nodeagent.core.coordination.maintenance import Maintenance, MaintenanceState
from nodeagent.core.plan.drift import describe_drift
from nodeagent.reasons import Reason
from nodeagent.report.machine_config_node import UpdateProgress
from nodeagent.report.status import Status
from nodeagent.update.history.outcome import ENDED_UNCHANGED
from nodeagent.update.ports import events
from nodeagent.update.ports.events import Event
from nodeagent.update.states import Phase

TYPES = ("MaintenancePlanned", "MaintenanceInProgress", "DrainInProgress", "Drained", "ConfigDrift")
# Pods in a message; the rest is a number.
SHOWN = 5
# Characters of a message, because conditions are sent with every write of the Node's status, and of a note, for which
# the API allows 1024 bytes.
LONGEST = 1000


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state from which the conditions follow.

    ``requester`` and ``reason`` are those of the planned or current disruption, "" without one. ``maintenance`` is true
    if an operator has the node; otherwise it is an update, of which only the drain matters to other clients.
    """

    requester: str = ""
    reason: str = ""
    maintenance: bool = False
    # Not begun: it waits for the lease, a slot or a window.
    planned: bool = False
    draining: bool = False
    drained: bool = False
    remaining: Sequence[Remaining] = ()
    # The drifted entries, as text.
    drift: str = ""
    # For the MachineConfigNode; None where no machine-config-controller manages the node.
    progress: UpdateProgress | None = None


def shape(state: NodeState) -> object:
    """Return the parts of the state that are not texts."""
    progress = (state.progress.phase, state.progress.desired) if state.progress is not None else None
    flags = state.maintenance, state.planned, state.draining, state.drained, bool(state.requester), bool(state.drift)
    return *flags, progress


def conditions(state: NodeState) -> Sequence[Mapping[str, str]]:
    """Return one entry for each of ``TYPES``, without times."""
    who = f"{state.requester}: {state.reason}" if state.reason else state.requester
    admin = "AdminRequested" if state.maintenance else "UpdateRequested"
    idle = "NothingPlanned"
    return [
        _entry("MaintenancePlanned", state.planned, admin, who, idle),
        _entry("MaintenanceInProgress", state.maintenance and not state.planned and bool(who), admin, who, idle),
        _entry("DrainInProgress", state.draining, admin, _drain_words(who, state.remaining), idle),
        _entry("Drained", state.drained, "DrainCompleted", who, idle),
        _entry("ConfigDrift", bool(state.drift), "EntriesDiffer", state.drift, "AsConfigured"),
    ]


def differing(wanted: Sequence[Mapping[str, str]], there: Sequence[Condition], now: str) -> list[dict[str, str]]:
    """Return the entries to write, which are those that differ.

    ``now`` is RFC 3339 in seconds. The time of the last transition remains if only texts changed. Conditions that were
    never true are not written.
    """
    by_type = {entry["type"]: entry for entry in there}
    changed = []
    for entry in wanted:
        old = by_type.get(entry["type"])
        if old is None and entry["status"] == "False":
            continue
        if old is not None and all(old.get(key) == value for key, value in entry.items()):
            continue
        since = (old.get("lastTransitionTime") or now) if old is not None and old["status"] == entry["status"] else now
        changed.append({**entry, "lastTransitionTime": since, "lastHeartbeatTime": now})
    return changed


def _entry(kind: str, holds: bool, reason: str, message: str, otherwise: str) -> Mapping[str, str]:
    if holds:
        return {"type": kind, "status": "True", "reason": reason, "message": message[:LONGEST]}
    return {"type": kind, "status": "False", "reason": otherwise, "message": ""}


def _drain_words(who: str, remaining: Sequence[Remaining]) -> str:
    if not remaining:
        return who
    shown = "; ".join(f"{pod.namespace}/{pod.name}: {pod.why}" for pod in remaining[:SHOWN])
    more = f"; and {len(remaining) - SHOWN} more" if len(remaining) > SHOWN else ""
    return f"{who}; {len(remaining)} pods are left: {shown}{more}"


# Seconds after which a pod that cannot be evicted is an Event: a disruption budget often allows it a moment later.
BLOCKED_FOR = 30.0

# Blocked pods with an Event of their own. The others are in the condition and in the status.
MAX_BLOCKED = 10
OWN_NAME = "nodeagent"


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A Kubernetes Event to write. ``reason`` and ``action`` are CamelCase words; the action is one of the agent."""

    reason: str
    action: str
    note: str
    warning: bool = False


def node_state(status: Status) -> NodeState:
    """Return the state for the conditions. A maintenance has precedence over an update, which waits for it."""
    return replace(_disruption(status), drift=describe_drift(status.drift))


def _disruption(status: Status) -> NodeState:
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
        requester=OWN_NAME,
        reason=f"update to {status.goal}",
        planned=planned,
        draining=draining,
        drained=status.drained,
        remaining=tuple(status.remaining or ()) if draining else (),
    )


class NodeEventSource:
    """Derives Kubernetes Events from the events of the agent. ``now`` is the steady clock in seconds."""

    def __init__(self) -> None:
        self._maintenance: tuple[Maintenance | None, MaintenanceState | None] = (None, None)
        self._phase: Phase | None = None
        self._blocked: dict[tuple[str, str], float] = {}

    def begin(self, status: Status) -> None:
        """Set the state at the start of the process. It gives no Event, because the previous process reported it."""
        note = status.maintenance
        self._maintenance = (note, note.state(status.boot_id) if note is not None else None)
        self._phase = status.phase

    def events_for(self, event: Event, status: Status, now: float) -> Sequence[NodeEvent]:
        """Return the Events for ``event``. ``status`` is the status after it."""
        node_events = self._events_for(event, status, now)
        return [replace(node_event, note=node_event.note[:LONGEST]) for node_event in node_events]

    def _events_for(self, event: Event, status: Status, now: float) -> Iterator[NodeEvent]:
        match event:
            case events.UpdateStarted(about=about, actions=actions):
                yield NodeEvent("UpdateStarted", "Update", f"update to {about.desired}: {actions}")
            case events.UpdateDone(about=about, message=message):
                how = f", {message}" if message else ""
                yield NodeEvent("UpdateDone", "Update", f"{about.desired} is the current config{how}")
            case events.SafePartsApplied(about=about, partial=partial):
                yield NodeEvent("SafePartsApplied", "Update", f"{about.desired}: {partial.words}")
            case events.UpdateWaiting(message=message, reason=reason):
                yield NodeEvent("UpdateWaiting", "Wait", f"{reason}: {message}")
            case events.UpdateCancelled(message=message):
                yield NodeEvent("UpdateCancelled", "Cancel", message)
            case events.FallbackChosen(message=message, reason=reason, kind=RebootKind.SOFT):
                # The kubelet reports no reboot of its own, because it compares boot IDs.
                words = "a soft reboot, which keeps the boot ID of the Node, because"
                yield NodeEvent("FallbackReboot", "Reboot", f"{words} {reason}: {message}", warning=True)
            case events.FallbackChosen(message=message, reason=reason):
                yield NodeEvent("FallbackReboot", "Reboot", f"{reason}: {message}", warning=True)
            case events.RevertStarted(message=message, reason=reason):
                yield NodeEvent("UpdateReverting", "Revert", f"{reason}: {message}", warning=True)
            case events.HostDegraded(message=message, reason=reason):
                word = "UpdateReverted" if reason == Reason.REVERTED else "UpdateDegraded"
                yield NodeEvent(word, "Update", f"{reason}: {message}", warning=True)
            # Every other end has an Event of its own.
            case events.UpdateFinished(entry=entry) if entry.outcome in ENDED_UNCHANGED:
                yield NodeEvent("UpdateEnded", "Update", f"{entry.reason}: {entry.message}")
            case events.ConfigRefused(message=message, reason=reason, repeated=False):
                yield NodeEvent("UpdateRefused", "Update", f"{reason}: {message}", warning=True)
            case events.PhaseEntered():
                yield from self._entered(event, status)
            case events.DrainAdvanced():
                yield from self._drain(status, now)
            case events.DriftChanged(drift=drift, message=message):
                yield NodeEvent("ConfigDrift" if drift else "ConfigDriftEnded", "Compare", message, bool(drift))
            case events.MaintenanceChanged():
                yield from self._maintained(status)
            case _:
                pass

    def _entered(self, event: events.PhaseEntered, status: Status) -> Iterator[NodeEvent]:
        before, self._phase = self._phase, event.about.phase
        # A phase is entered again when its reason changes.
        if self._phase is before:
            return
        if self._phase is Phase.DRAINING:
            # A pod that was blocked in an earlier drain has its time again.
            self._blocked.clear()
            yield NodeEvent("DrainRequested", "Drain", f"{OWN_NAME}: update to {status.goal}")
        elif before is Phase.DRAINING and status.drained:
            yield NodeEvent("Drained", "Drain", f"for the update to {status.goal}")
        if self._phase is Phase.REBOOTING:
            yield NodeEvent("Rebooting", "Reboot", event.message or f"for the update to {status.goal}")

    def _drain(self, status: Status, now: float) -> Iterator[NodeEvent]:
        stuck = {(pod.namespace, pod.name): pod for pod in status.remaining or () if is_blocked(pod)}
        self._blocked = {key: self._blocked.get(key, now) for key in stuck}
        late = [key for key, since in self._blocked.items() if now - since >= BLOCKED_FOR]
        # With each report of the drain: the writer makes one series of them.
        for key in sorted(late)[:MAX_BLOCKED]:
            yield _blocked(stuck[key])

    def _maintained(self, status: Status) -> Iterator[NodeEvent]:
        note, (before, was) = status.maintenance, self._maintenance
        state = note.state(status.boot_id) if note is not None else None
        self._maintenance = (note, state)
        if note is None:
            # One that never began had no Event of a start.
            if before is not None and before.began:
                yield NodeEvent("MaintenanceEnded", "Maintain", f"{before.words} ({before.ended or 'over'})")
            return
        if before is not None and not before.drained and note.drained:
            yield NodeEvent("Drained", "Drain", f"for the maintenance by {note.words}")
        if note.problem and (before is None or note.problem != before.problem):
            yield NodeEvent("MaintenanceProblem", "Maintain", f"{note.problem} (for {note.words})", warning=True)
        if state is was:
            return
        match state:
            case MaintenanceState.PLANNED:
                yield NodeEvent("MaintenancePlanned", "Maintain", note.words)
            case MaintenanceState.DRAINING:
                self._blocked.clear()
                yield from _started(note, was)
                yield NodeEvent("DrainRequested", "Drain", note.words)
            case MaintenanceState.POWERING_OFF:
                yield from _started(note, was)
                yield NodeEvent("PoweringOff", "PowerOff", note.words)
            case MaintenanceState.UNDER_WAY:
                yield from _started(note, was)
            case MaintenanceState.ENDING:
                yield NodeEvent(Reason.MAINTENANCE_ENDING, "Maintain", f"{note.words} ({note.ended})")
            case None:
                pass


def _started(note: Maintenance, was: MaintenanceState | None) -> Iterator[NodeEvent]:
    """Return the start of a maintenance, unless the previous process reported it."""
    if was is MaintenanceState.PLANNED:
        until = f" until {note.until}" if note.until else ""
        yield NodeEvent("MaintenanceStarted", "Maintain", note.words + until)


def _blocked(pod: Remaining) -> NodeEvent:
    return NodeEvent("DrainBlocked", "Evict", f"{pod.namespace}/{pod.name}: {pod.why}", warning=True)
