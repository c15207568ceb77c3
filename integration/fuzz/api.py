# SPDX-License-Identifier: Apache-2.0
"""Objects and refusals of an API server, as every reader of the core meets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from integration.fuzz.target import Target, choices, document
from nodeagent.core.coordination.gates import (
    hooks_with,
    hooks_without,
    machine_gates,
    machine_of,
    maintenance_gates,
    node_gates,
)
from nodeagent.core.coordination.kube_objects import (
    ApiStatus,
    LeaseObject,
    Machine,
    MachineConfigNode,
    MachineConfigPool,
    MachineOSConfig,
    Node,
    NodeMaintenance,
    Pod,
)
from nodeagent.core.coordination.lease import read_lease
from nodeagent.kube.decode import decoded, status_of
from nodeagent.kube.errors import ServerFault, from_answer

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


def _node(node: Node) -> None:
    node_gates(node, controls_node=False)
    machine_of(node)


def _machine(machine: Machine) -> None:
    machine_gates(machine)
    hooks_with(machine)
    hooks_without(machine)


READERS: Final[Mapping[type[Any], Callable[[Any], object]]] = {
    Node: _node,
    Pod: lambda found: found,
    LeaseObject: read_lease,
    Machine: _machine,
    NodeMaintenance: lambda found: maintenance_gates("n", [found]),
    MachineConfigPool: lambda found: found,
    MachineConfigNode: lambda found: found,
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


def refusals(data: bytes) -> None:
    for status, detail, message in read_refusals(data):
        from_answer(status, detail, "POST /x", message)


def read_refusals(data: bytes) -> Iterator[tuple[int, ApiStatus, str]]:
    """Yield each status of a refusal with the decoded answer and its message."""
    found = document(REFUSAL, data)
    if found is not None:
        for status in (403, 404, 409, 429, 500):
            yield status, status_of(found), str(found.get("message"))


OBJECTS: Final = (
    b"{}",
    b'{"metadata": {"namespace": "d", "uid": "x"}, "spec": {}}',
    # Inputs of earlier runs that failed.
    b'{"\\ud800": 1}',
    b'{"metadata": {"name": "\\ud800", "uid": "u", "resourceVersion": "1"}}',
    *choices(40),
)
REFUSALS: Final = (
    b'{"message": "API rate limit exceeded", "details": "retry in 5 s"}',
    b'{"message": ["x"], "details": {"causes": [{"reason": ["x"]}]}}',
    *choices(12),
)
TARGETS: Final = (Target("api-objects", objects, OBJECTS), Target("api-refusals", refusals, REFUSALS))
