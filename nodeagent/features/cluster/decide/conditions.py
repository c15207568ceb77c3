# SPDX-License-Identifier: Apache-2.0
"""The node conditions of an update or a maintenance.

The conditions about disruption are those that Kubernetes 1.37 defines (KEP-5683), and those of features. Older API
servers accept any type, and `kubectl describe node` shows them: requester, reason, start, remaining pods. They are
information, not locks. The client that sets a condition clears it, so all of them are written from one state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodeagent.core.coordination.kube_objects import Condition
from nodeagent.features.cluster.decide.drain import Remaining
from nodeagent.features.cluster.decide.machine_config_node import UpdateProgress
from nodeagent.features.cluster.events import remaining_of
from nodeagent.report.node_events import OWN_NAME
from nodeagent.report.parts.registry import disruption_of, node_conditions
from nodeagent.report.status import Status
from nodeagent.update.states import Phase

TYPES = ("MaintenancePlanned", "MaintenanceInProgress", "DrainInProgress", "Drained")
# Characters of a message, because conditions are sent with every write of the Node's status.
LONGEST = 1000
# Pods in a message; the rest is a number.
SHOWN = 5


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
    # The messages of the conditions of features that hold, by kind.
    others: Mapping[str, str] = field(default_factory=dict)
    # For the MachineConfigNode; None where no machine-config-controller manages the node.
    progress: UpdateProgress | None = None


def shape(state: NodeState) -> object:
    """Return the parts of the state that are not texts."""
    progress = (state.progress.phase, state.progress.desired) if state.progress is not None else None
    flags = (
        state.maintenance,
        state.planned,
        state.draining,
        state.drained,
        bool(state.requester),
        frozenset(state.others),
    )
    return *flags, progress


def conditions(state: NodeState) -> Sequence[Mapping[str, str]]:
    """Return one entry for each of ``TYPES`` and for each condition of a feature, without times."""
    who = f"{state.requester}: {state.reason}" if state.reason else state.requester
    admin = "AdminRequested" if state.maintenance else "UpdateRequested"
    idle = "NothingPlanned"
    return [
        _entry("MaintenancePlanned", state.planned, admin, who, idle),
        _entry("MaintenanceInProgress", state.maintenance and not state.planned and bool(who), admin, who, idle),
        _entry("DrainInProgress", state.draining, admin, _drain_words(who, state.remaining), idle),
        _entry("Drained", state.drained, "DrainCompleted", who, idle),
        *(
            _entry(other.kind, bool(message), other.holds, message, other.otherwise)
            for other in node_conditions()
            for message in (state.others.get(other.kind, ""),)
        ),
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


def node_state(status: Status) -> NodeState:
    """Return the state for the conditions. A maintenance has precedence over an update, which waits for it."""
    messages = {other.kind: other.message(status) for other in node_conditions()}
    return replace(_disruption(status), others={kind: message for kind, message in messages.items() if message})


def _disruption(status: Status) -> NodeState:
    if (operator := disruption_of(status)) is not None:
        return NodeState(
            requester=operator.requester,
            reason=operator.reason + (f" (until {operator.until})" if operator.until else ""),
            maintenance=True,
            planned=operator.planned,
            draining=operator.draining,
            drained=operator.drained,
            remaining=remaining_of(status) if operator.draining else (),
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
        remaining=remaining_of(status) if draining else (),
    )
