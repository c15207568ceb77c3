# SPDX-License-Identifier: Apache-2.0
"""Objects and refusals of an API server, as every reader of the core meets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from integration.fuzz.target import Target, choices, document
from nodeagent.core.coordination.annotations import read_request
from nodeagent.core.coordination.gates import (
    hooks_with,
    hooks_without,
    machine_gates,
    machine_of,
    maintenance_gates,
    node_gates,
)
from nodeagent.core.coordination.kube_objects import (
    LeaseObject,
    Machine,
    MachineConfigNode,
    MachineConfigPool,
    MachineOSConfig,
    Node,
    NodeMaintenance,
    Pod,
)
from nodeagent.core.coordination.kube_time import ServerClock
from nodeagent.core.coordination.lease import Claim, read_lease
from nodeagent.features.cluster.decide.annotations import drain_request, source_of
from nodeagent.features.cluster.decide.conditions import NodeState, conditions, differing
from nodeagent.features.cluster.decide.drain import (
    DrainPolicy,
    PodWait,
    cause_of,
    classify,
    daemon_set_of,
    eviction,
    remaining_pod,
    remedy,
)
from nodeagent.features.cluster.decide.drain_order import DrainOrder, present_step
from nodeagent.features.cluster.decide.lease import judge, renewal, take_over
from nodeagent.features.cluster.decide.machine_config_node import UpdateProgress, changed_status
from nodeagent.features.cluster.decide.readiness import unready
from nodeagent.kube.decode import decoded, status_of
from nodeagent.kube.errors import ServerFault, from_answer
from nodeagent.update.states import Phase

# Every field that some reader reads, as one object of every kind.
WHOLE: Final[dict[str, Any]] = {
    "metadata": {
        "name": "slot-disrupt-p-0",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "1",
        "generation": 2,
        "labels": {"node-role.kubernetes.io/worker": ""},
        "annotations": {"machine.openshift.io/machine": "ns/m"},
        "ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "o", "controller": True}],
        "finalizers": ["f"],
    },
    "spec": {
        "unschedulable": False,
        "taints": [{"key": "medik8s.io/drain", "effect": "NoSchedule"}],
        "volumes": [{"emptyDir": {}}],
        "nodeName": "n",
        "reason": "disks",
        "lifecycleHooks": {"preDrain": [{"name": "h", "owner": "o"}]},
        "configuration": {"name": "c"},
        "nodeSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
        "machineConfigPool": {"name": "worker"},
        "holderIdentity": "nmo",
        "leaseDurationSeconds": 60,
        "leaseTransitions": 1,
        "request": "eA==",
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    },
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "observedGeneration": 2,
        "capacity": {"pods": "110"},
        "allocatable": {"pods": "110"},
        "configVersion": {"desired": "c"},
        "userInfo": {"username": "nodeagent:n", "groups": ["nodeagent"]},
    },
}
REFUSAL: Final[dict[str, Any]] = {
    "kind": "Status",
    "reason": "TooManyRequests",
    "message": 'admission webhook "d.x" denied it',
    "details": {"causes": [{"reason": "DisruptionBudget", "message": "needs 1"}], "retryAfterSeconds": 5},
}
CLAIM: Final = Claim("nodeagent", "op", "why", "host")
PROGRESS: Final = UpdateProgress(Phase.DRAINING, "", "c")
SINCE: Final = "2026-01-01T00:00:00Z"


def _node(node: Node) -> None:
    node_gates(node, controls_node=False)
    machine_of(node)
    unready(node, None, SINCE, "2026-01-01T01:00:00Z", {"pods": "9"}, {})
    drain_request(read_request(node), "c")
    differing(conditions(NodeState("a", "b", draining=True)), (node.get("status") or {}).get("conditions") or (), SINCE)


def _pod(pod: Pod) -> None:
    for policy in (DrainPolicy(), DrainPolicy(unmanaged=False, local_data=False)):
        classify(pod, policy)
    daemon_set_of(pod)
    eviction(pod)
    present_step(DrainOrder(("a=b",), ("!c",)), [pod])
    remedy(remaining_pod(pod, PodWait.BUDGET, "x"))


def _lease(lease: LeaseObject) -> None:
    held, clock = read_lease(lease), ServerClock().updated(1e9, 0.0, 1.0)
    judge(held, None, CLAIM, clock, 5.0)
    renewal(held, 60.0, 1e9)
    take_over(held, CLAIM, "n", "u", 60.0, 1e9)


def _machine(machine: Machine) -> None:
    machine_gates(machine)
    hooks_with(machine)
    hooks_without(machine)


def _config_node(found: MachineConfigNode) -> None:
    changed_status(PROGRESS, found.get("status") or {}, SINCE)


READERS: Final[Mapping[type[Any], Callable[[Any], object]]] = {
    Node: _node,
    Pod: _pod,
    LeaseObject: _lease,
    Machine: _machine,
    NodeMaintenance: lambda found: maintenance_gates("n", [found]),
    MachineConfigPool: lambda found: found,
    MachineConfigNode: _config_node,
    MachineOSConfig: lambda found: found,
}


def objects(data: bytes) -> None:
    read_objects(data, READERS)


def read_objects(data: bytes, readers: Mapping[type[Any], Callable[[Any], object]]) -> None:
    """Decode the object as each kind, and read it if it is one."""
    found = document(WHOLE, data)
    if found is None:
        return
    for kind, read in readers.items():
        try:
            value = decoded(kind, found, "GET /x")
        except ServerFault:
            continue
        read(value)
        if kind is Node:
            source_of(found)


def refusals(data: bytes) -> None:
    found = document(REFUSAL, data)
    if found is None:
        return
    for status in (403, 404, 409, 429, 500):
        detail = status_of(found)
        from_answer(status, detail, "POST /x", str(found.get("message")))
        cause_of(status, detail)


TARGETS: Final = (
    Target("api-objects", objects, [b"{}", b'{"metadata": {"namespace": "d", "uid": "x"}, "spec": {}}', *choices(40)]),
    Target(
        "api-refusals",
        refusals,
        [
            b'{"message": "API rate limit exceeded", "details": "retry in 5 s"}',
            b'{"message": ["x"], "details": {"causes": [{"reason": ["x"]}]}}',
            *choices(12),
        ],
    ),
)
