# SPDX-License-Identifier: Apache-2.0
"""The signs of those who work on a node without its lease."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from nodeagent.core.coordination.gates import (
    HOOK,
    KURED,
    TAINTS,
    Gate,
    hooks_with,
    hooks_without,
    machine_gates,
    machine_of,
    maintenance_gates,
    node_gates,
)

MCO = "machineconfiguration.openshift.io/"
DONE = {MCO + "currentConfig": "a", MCO + "desiredConfig": "a", MCO + "state": "Done"}


def node(*taints: str, labels: Any = None, annotations: Any = None, **meta: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": labels, "annotations": annotations, **meta},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
    }


@pytest.mark.parametrize(
    ("what", "reasons"),
    [
        (node(), []),
        (node("node.kubernetes.io/unschedulable"), []),
        (node(deletionTimestamp="T"), ["NodeLeaving"]),
        (node("ToBeDeletedByClusterAutoscaler"), ["NodeLeaving"]),
        (node("node.kubernetes.io/out-of-service"), ["OutOfService"]),
        (node("medik8s.io/drain"), ["UnderMaintenance"]),
        (node(labels={"remediation.medik8s.io/exclude-from-remediation": "true"}), ["UnderMaintenance"]),
        (node(labels={"remediation.medik8s.io/exclude-from-remediation": "false"}), []),
        (node(annotations=DONE), []),
        (node(annotations={**DONE, MCO + "desiredConfig": "b"}), ["MachineConfigOperator"]),
        (node(annotations={**DONE, MCO + "state": "Working"}), ["MachineConfigOperator"]),
        (node(annotations={**DONE, MCO + "state": "Degraded"}), ["MachineConfigOperator"]),
        (node(annotations={MCO + "desiredDrain": "drain-b"}), ["MachineConfigOperator"]),
        (node(annotations={MCO + "desiredDrain": "drain-b", MCO + "lastAppliedDrain": "drain-b"}), []),
        (node("medik8s.io/drain", deletionTimestamp="T"), ["NodeLeaving", "UnderMaintenance"]),
    ],
)
def test_node_gates(what: dict[str, Any], reasons: list[str]) -> None:
    assert [gate.reason for gate in node_gates(what, controls_node=False)] == reasons


@pytest.mark.finding(
    "cluster: signs of other actors", "A sign of another actor that is about to stop the node is a gate."
)
@pytest.mark.parametrize(
    ("what", "reasons"),
    [
        (node("karpenter.sh/disrupted"), ["NodeLeaving"]),
        (node("karpenter.sh/disruption"), ["NodeLeaving"]),
        (node("karpenter.sh/disrupted", deletionTimestamp="T"), ["NodeLeaving", "NodeLeaving"]),
        (node("medik8s.io/remediation"), ["UnderMaintenance"]),
        (node("medik8s.io/fence-agents-remediation"), ["UnderMaintenance"]),
        (node("node.cloudprovider.kubernetes.io/shutdown"), ["NodeLeaving"]),
        (node("cloud.google.com/impending-node-termination"), ["NodeLeaving"]),
        (node("aws-node-termination-handler/spot-itn"), ["NodeLeaving"]),
        (node("aws-node-termination-handler/scheduled-maintenance"), ["UnderMaintenance"]),
        (node("aws-node-termination-handler/asg-lifecycle-termination"), ["NodeLeaving"]),
        (node(annotations={"weave.works/kured-reboot-in-progress": "2026-11-26T00:00:00Z"}), ["UnderMaintenance"]),
        # Wishes and hints of others, which do not say that the node stops.
        (node("DeletionCandidateOfClusterAutoscaler"), []),
        (node("node.cluster.x-k8s.io/outdated-revision"), []),
        (node("weave.works/kured-node-reboot"), []),
        (node("aws-node-termination-handler/rebalance-recommendation"), []),
        (node("node.kubernetes.io/unreachable"), []),
    ],
)
def test_signs_of_other_actors(what: dict[str, Any], reasons: list[str]) -> None:
    assert [gate.reason for gate in node_gates(what, controls_node=True)] == reasons


PAGE: Final = Path(__file__).parents[3] / "docs/explanation/leases.md"


@pytest.mark.finding("cluster: signs of other actors", "The docs have each sign, and those that are not seen.")
@pytest.mark.parametrize(
    "sign",
    [
        *TAINTS,
        KURED,
        "weave.works/kured-node-lock",
        "/run/reboot-required",
        "DeletionCandidateOfClusterAutoscaler",
        "node.cluster.x-k8s.io/outdated-revision",
        "weave.works/kured-node-reboot",
        "rebalance-recommendation",
        "node.kubernetes.io/unreachable",
    ],
)
def test_the_page_has_each_sign(sign: str) -> None:
    # Those of one actor share their prefix there.
    prefix, _, name = sign.rpartition("/")
    page = PAGE.read_text()
    assert prefix in page
    assert name in page


def test_requests_of_the_controller_are_no_gate() -> None:
    working = {**DONE, MCO + "state": "Working", MCO + "desiredConfig": "b", MCO + "desiredDrain": "drain-b"}
    assert node_gates(node(annotations=working), controls_node=True) == []
    assert len(node_gates(node(annotations=working), controls_node=False)) == 2
    assert [
        gate.reason for gate in node_gates(node(annotations=working, deletionTimestamp="T"), controls_node=True)
    ] == ["NodeLeaving"]


def test_maintenance_gates() -> None:
    others = {"metadata": {"name": "m0"}, "spec": {"nodeName": "n2"}}
    ours = {"metadata": {"name": "m1"}, "spec": {"nodeName": "n1", "reason": "new disks"}}
    assert maintenance_gates("n1", [others, ours]) == [
        Gate("UnderMaintenance", "NodeMaintenance m1 (new disks)"),
    ]
    assert maintenance_gates("n1", [{"metadata": {"name": "empty"}}]) == []


def test_machine() -> None:
    assert machine_of(node(annotations={"machine.openshift.io/machine": "ns/m"})) == ("ns", "m")
    for nonsense in ("", "m", "/m", "ns/", None):
        assert machine_of(node(annotations={"machine.openshift.io/machine": nonsense})) is None
    machine: dict[str, Any] = {"metadata": {"namespace": "ns", "name": "m"}}
    assert machine_gates(machine) == []
    machine["metadata"]["deletionTimestamp"] = "T"
    assert machine_gates(machine) == [Gate("NodeLeaving", "Machine ns/m is being deleted")]


def test_hooks_of_others_stay() -> None:
    etcd = {"name": "EtcdQuorumOperator", "owner": "clusteroperator/etcd"}
    bare: dict[str, Any] = {"spec": None}
    theirs = {"spec": {"lifecycleHooks": {"preDrain": [etcd]}}}
    both = {"spec": {"lifecycleHooks": {"preDrain": [etcd, HOOK]}}}
    assert hooks_with(bare) == [HOOK]
    assert hooks_with(theirs) == [etcd, HOOK]
    assert hooks_with(both) is None
    assert hooks_without(both) == [etcd]
    assert hooks_without(theirs) is None
    assert hooks_without(bare) is None
