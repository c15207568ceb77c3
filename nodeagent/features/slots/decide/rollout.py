# SPDX-License-Identifier: Apache-2.0
"""Whether every node of a cluster runs its desired config, by pool, and why some do not.

Pools are those of the machine-config-operator, with its rules: control plane before a custom pool before ``worker``,
and an empty selector matches no node. The target of a node is the config that its pool was rendered to last, also while
the pool is paused. Without such pools, nodes with a desired config are grouped by their label ``nodeagent.org/pool``,
or by their role, and the target is their own annotation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from nodeagent.core.coordination.annotations import ControllerRequest, DaemonState, clean, read_request
from nodeagent.core.coordination.gates import Gate, maintenance_gates, node_gates
from nodeagent.core.coordination.kube_objects import (
    LeaseObject,
    MachineConfigPool,
    Node,
    NodeMaintenance,
    Rule,
    Selector,
)
from nodeagent.core.coordination.lease import read_lease
from nodeagent.core.coordination.operations import is_by_operator
from nodeagent.features.slots.reasons import SlotReason
from nodeagent.reasons import Reason

POOL_LABEL: Final = "nodeagent.org/pool"
CORDONED_BY: Final = "nodeagent.org/cordoned-by"
ROLE: Final = "node-role.kubernetes.io/"
CONTROL_PLANE: Final = ("control-plane", "master")
# Name of the lease holder during an update.
HOLDER: Final = "nodeagent"


class NodeProgress(StrEnum):
    UPDATED = "updated"
    UPDATING = "updating"
    # The update has not begun.
    PENDING = "pending"
    DEGRADED = "degraded"


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects that were read.

    ``leases`` are node leases by the name of the node, ``slots`` those of all pools. ``images`` are the images of pools
    in image mode by the name of the pool, "" for one that is not built yet, None if that is not known. ``now`` is the
    API server's time in seconds since the epoch, None if it sent none.
    """

    nodes: Sequence[Node]
    pools: Sequence[MachineConfigPool] = ()
    leases: Mapping[str, LeaseObject] = field(default_factory=dict)
    maintenances: Sequence[NodeMaintenance] = ()
    images: Mapping[str, str] | None = None
    now: float | None = None
    slots: Sequence[LeaseObject] = ()


@dataclass(frozen=True, slots=True)
class NodeRollout:
    """``target`` is the config that the node should run. ``flags`` name other actors that block a disruption."""

    # In the order of the JSON.
    name: str
    progress: NodeProgress
    current: str
    desired: str
    target: str
    state: str
    reason: str
    flags: Sequence[Gate] = ()


@dataclass(frozen=True, slots=True)
class PoolRollout:
    """``troubles`` are those of the pool: its target is not known, or not up to date."""

    name: str
    # Empty if each node has its own.
    target: str
    paused: bool
    troubles: Sequence[str]
    members: Sequence[NodeRollout]

    def having(self, progress: NodeProgress) -> Sequence[NodeRollout]:
        return [member for member in self.members if member.progress is progress]

    @property
    def flagged(self) -> Sequence[NodeRollout]:
        return [member for member in self.members if member.flags]

    @property
    def complete(self) -> bool:
        return not self.troubles and len(self.having(NodeProgress.UPDATED)) == len(self.members)


@dataclass(frozen=True, slots=True)
class Rollout:
    """``unmanaged`` are nodes of no pool, for which no controller names a config."""

    pools: Sequence[PoolRollout]
    unmanaged: Sequence[str]

    @property
    def complete(self) -> bool:
        """Return whether all pools are complete. A cluster without a pool counts as complete, so check that first."""
        return all(pool.complete for pool in self.pools)

    @property
    def degraded(self) -> bool:
        return any(pool.having(NodeProgress.DEGRADED) for pool in self.pools)


def rollout_of(objects: ClusterObjects, *, silent: bool = False) -> Rollout:
    """``silent``: nodes without a desired config are members of their group, as ``PENDING``."""
    if objects.pools:
        return _by_pools(objects)
    members: dict[str, list[NodeRollout]] = {}
    unmanaged = []
    for node in objects.nodes:
        desired = read_request(node).desired
        if desired or silent:
            members.setdefault(_group(node), []).append(_member(node, desired, objects))
        else:
            unmanaged.append(_name(node))
    pools = [_pool(name, pool_members) for name, pool_members in sorted(members.items())]
    return Rollout(pools, sorted(unmanaged))


def _by_pools(objects: ClusterObjects) -> Rollout:
    members: dict[str, list[NodeRollout]] = {_name(pool): [] for pool in objects.pools}
    targets = {_name(pool): _target(pool) for pool in objects.pools}
    unmanaged = []
    for node in objects.nodes:
        name = _pool_of(node, objects.pools)
        if name is None:
            unmanaged.append(_name(node))
        else:
            members[name].append(_pool_member(node, name, targets[name], objects))
    pools = [
        PoolRollout(
            name=_name(pool),
            target=_target(pool),
            paused=bool((pool.get("spec") or {}).get("paused")),
            troubles=_troubles(pool, objects.images or {}),
            members=sorted(members[_name(pool)], key=lambda member: member.name),
        )
        for pool in sorted(objects.pools, key=_name)
    ]
    return Rollout(pools, sorted(unmanaged))


def _pool(name: str, members: Iterable[NodeRollout]) -> PoolRollout:
    by_name = sorted(members, key=lambda member: member.name)
    targets = {member.target for member in by_name}
    return PoolRollout(name, targets.pop() if len(targets) == 1 else "", paused=False, troubles=(), members=by_name)


def _name(node_or_pool: Node | MachineConfigPool) -> str:
    return node_or_pool["metadata"]["name"]


def _target(pool: MachineConfigPool) -> str:
    return ((pool.get("spec") or {}).get("configuration") or {}).get("name") or ""


def _troubles(pool: MachineConfigPool, images: Mapping[str, str]) -> Sequence[str]:
    meta, status = pool["metadata"], pool.get("status") or {}
    troubles = []
    if not _target(pool):
        troubles.append("no config has been rendered for it yet")
    # Until then its target may be the config of before.
    if (status.get("observedGeneration") or 0) < (meta.get("generation") or 0):
        troubles.append("its controller has not observed its newest version yet")
    if images.get(_name(pool)) == "":
        troubles.append("its image has not been built yet")
    broken = [
        condition.get("message") or condition.get("reason")
        for condition in status.get("conditions") or ()
        if condition["type"] == "RenderDegraded" and condition["status"] == "True"
    ]
    troubles += [clean(f"its config cannot be rendered: {message}") for message in broken]
    return troubles


def _labels(node: Node) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def pool_of(node: Node, pools: Sequence[MachineConfigPool]) -> str | None:
    """Return the pool of a node; None for a node of no pool."""
    return _pool_of(node, pools) if pools else _group(node)


def _pool_of(node: Node, pools: Sequence[MachineConfigPool]) -> str | None:
    """Return the pool as the machine-config-operator decides. A node of two custom pools, of which ``arbiter`` is one,
    belongs to none: neither gives it a config."""
    labels = _labels(node)
    # The machine-config-operator ignores Windows nodes.
    if labels.get("kubernetes.io/os") == "windows":
        return None
    names = [_name(pool) for pool in pools if _selects((pool.get("spec") or {}).get("nodeSelector") or {}, labels)]
    custom = [name for name in names if name not in ("master", "worker")]
    if len(custom) > 1:
        return None
    for name in ("master", *custom, "worker"):
        if name in names:
            return name
    return None


def _selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    exact, rules = selector.get("matchLabels") or {}, selector.get("matchExpressions") or ()
    # In Kubernetes an empty selector matches every object. The machine-config-operator lets it match none.
    if not exact and not rules:
        return False
    return all(labels.get(key) == value for key, value in exact.items()) and all(_rule(rule, labels) for rule in rules)


def _rule(rule: Rule, labels: Mapping[str, str]) -> bool:
    key, values = rule.get("key") or "", rule.get("values") or ()
    match rule.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            # A newer operator: no pool is better than the wrong one.
            return False


def _group(node: Node) -> str:
    labels = _labels(node)
    if named := labels.get(POOL_LABEL):
        return named
    roles = sorted(key.removeprefix(ROLE) for key in labels if key.startswith(ROLE) and key != ROLE)
    # A node of a compact cluster has both roles, and is updated with the control plane.
    if any(role in CONTROL_PLANE for role in roles):
        return CONTROL_PLANE[0]
    # A node of a custom pool has the role of its pool beside that of a worker.
    return next((role for role in roles if role != "worker"), "worker")


def _member(node: Node, target: str, objects: ClusterObjects) -> NodeRollout:
    request = read_request(node)
    return NodeRollout(
        name=_name(node),
        target=target,
        current=request.current,
        desired=request.desired,
        state=request.state,
        reason=clean(request.reason),
        progress=_progress(request, target),
        flags=_flags(node, request, objects),
    )


def _pool_member(node: Node, pool: str, target: str, objects: ClusterObjects) -> NodeRollout:
    """Return a node of a MachineConfigPool: the image counts too, and a missing desired config is a flag."""
    member, request = _member(node, target, objects), read_request(node)
    if (
        # In image mode a pool builds its image again without a new config, so the name of the config alone proves
        # nothing.
        member.progress is NodeProgress.UPDATED
        and objects.images is not None
        and request.image != objects.images.get(pool, "")
    ):
        member = replace(member, progress=NodeProgress.PENDING)
    if not request.desired:
        member = replace(member, flags=sorted({*member.flags, _NO_DESIRED_CONFIG}))
    elif (
        member.progress is NodeProgress.DEGRADED
        and request.cordoned
        and Reason.CORDONED not in [f.reason for f in member.flags]
    ):
        member = replace(member, flags=sorted({*member.flags, _CORDONED}))
    return member


_NO_DESIRED_CONFIG: Final = Gate(
    SlotReason.NO_DESIRED_CONFIG,
    "it has no desiredConfig, so its controller counts it as unavailable and gives it none: annotate the first one",
)
_CORDONED: Final = Gate(
    Reason.CORDONED,
    "its controller gives a cordoned node no other config: run kubectl uncordon after a check of the node",
)


def _progress(request: ControllerRequest, target: str) -> NodeProgress:
    # The state comes first: the configs of a node that is degraded by drift are equal.
    if request.state in (DaemonState.DEGRADED, DaemonState.UNRECONCILABLE):
        return NodeProgress.DEGRADED
    if (
        request.state == DaemonState.DONE
        and request.current == request.desired
        and request.current_image == request.image
    ):
        return NodeProgress.UPDATED if target and request.current == target else NodeProgress.PENDING
    # An agent without a state has not begun.
    return NodeProgress.UPDATING if request.state else NodeProgress.PENDING


def _flags(node: Node, request: ControllerRequest, objects: ClusterObjects) -> Sequence[Gate]:
    """Return the actors that block a disruption of this node, without the update itself."""
    name = _name(node)
    # The annotations of its controller are the update itself, and no other actor.
    gates = [*node_gates(node, controls_node=True), *maintenance_gates(name, objects.maintenances)]
    notes = node["metadata"].get("annotations") or {}
    if request.cordoned and CORDONED_BY not in notes and not request.drain.startswith("drain-"):
        gates.append(Gate(Reason.CORDONED, "the node is cordoned, and not by an update"))
    for condition in (node.get("status") or {}).get("conditions") or ():
        kind, message = condition["type"], condition.get("message") or condition.get("reason") or ""
        if kind not in ("MaintenancePlanned", "MaintenanceInProgress") or condition["status"] != "True":
            continue
        # An agent in the queue sets it itself.
        if condition.get("reason") != "UpdateRequested":
            gates.append(Gate(Reason.UNDER_MAINTENANCE, clean(f"{kind}: {message}")))
    # The lease of a running update is not a flag; see _held.
    if (gate := _held(objects.leases.get(name), objects.now)) is not None:
        gates.append(gate)
    return sorted(set(gates))


def _held(data: LeaseObject | None, now: float | None) -> Gate | None:
    if data is None:
        return None
    lease = read_lease(data)
    # A lease that has expired by the server's clock blocks no other holder.
    over = lease.expires is not None and now is not None and lease.expires < now
    who = lease.holder_notes.get("requester") or lease.identity
    updating = who == HOLDER and not is_by_operator(lease.holder_notes.get("operation", ""))
    if not lease.identity or over or updating:
        return None
    purpose = f": {lease.holder_notes['reason']}" if lease.holder_notes.get("reason") else ""
    since = f" since {lease.acquired}" if lease.acquired else ""
    return Gate(Reason.LEASE_HELD, clean(f"{who} holds the node lease{since}{purpose}"))
