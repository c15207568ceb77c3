# SPDX-License-Identifier: Apache-2.0
"""Who works on a node without its lease, read from a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.other_holders import client_at, client_of
from nodeagent.core.coordination.kube_objects import MAINTENANCES
from nodeagent.errors import Refused
from nodeagent.features.cluster.decide.bootc_node import BOOTC_NODES
from nodeagent.features.cluster.gates import MACHINES, KubeGates
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Forbidden

MACHINE_NOTE = "machine.openshift.io/machine"


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with client_of(cluster) as made:
        yield made


@pytest.fixture
def gates(client: KubeClient, node: str) -> KubeGates:
    return KubeGates(client, node, controls_node=False)


@pytest.fixture
def machine(cluster: Cluster, node: str) -> str:
    """The path of the node's Machine, on which the etcd operator has a hook."""
    etcd = {"name": "EtcdQuorumOperator", "owner": "clusteroperator/etcd"}
    body = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "metadata": {"name": node, "finalizers": ["machine.machine.openshift.io"]},
        "spec": {"lifecycleHooks": {"preDrain": [etcd]}, "unknownToUs": {"kept": True}},
    }
    cluster.admin.create(MACHINES.format("default", "").rstrip("/"), body)
    cluster.admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {MACHINE_NOTE: f"default/{node}"}}})
    return MACHINES.format("default", node)


async def words(gates: KubeGates) -> list[str]:
    return [f"{gate.reason}: {gate.message}" for gate in await gates.read()]


async def test_no_other_actor(gates: KubeGates) -> None:
    assert await words(gates) == []
    await gates.check()
    await gates.hold_machine()
    await gates.free_machine()


async def test_a_maintenance_of_this_node_and_of_no_other(cluster: Cluster, node: str, gates: KubeGates) -> None:
    for name, target in (("mine", node), ("theirs", "another-node")):
        body: dict[str, Any] = {"metadata": {"name": f"{name}-{node}"}, "spec": {"nodeName": target, "reason": "disks"}}
        kind = {"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance"}
        cluster.admin.create(MAINTENANCES, {**kind, **body})
    assert await words(gates) == [f"UnderMaintenance: NodeMaintenance mine-{node} (disks)"]
    with pytest.raises(Refused, match="disks") as caught:
        await gates.check()
    assert caught.value.reason == "UnderMaintenance"


async def test_a_node_that_the_autoscaler_takes_away(cluster: Cluster, node: str, gates: KubeGates) -> None:
    taints = [{"key": "ToBeDeletedByClusterAutoscaler", "value": "1795251600", "effect": "NoSchedule"}]
    cluster.admin.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})
    assert [line.partition(":")[0] for line in await words(gates)] == ["NodeLeaving"]


async def test_a_machine_is_held_and_given_free(cluster: Cluster, machine: str, gates: KubeGates) -> None:
    await gates.hold_machine()
    await gates.hold_machine()
    spec = cluster.admin.get(machine)["spec"]
    assert [hook["name"] for hook in spec["lifecycleHooks"]["preDrain"]] == ["EtcdQuorumOperator", "NodeUpdate"]
    assert spec["unknownToUs"] == {"kept": True}
    await gates.free_machine()
    await gates.free_machine()
    (left,) = cluster.admin.get(machine)["spec"]["lifecycleHooks"]["preDrain"]
    assert left["name"] == "EtcdQuorumOperator"


@pytest.mark.finding(
    "cluster: signs for other actors",
    "During a disruption the Node has the annotations by which the cluster autoscaler and Karpenter leave it alone.",
)
async def test_autoscalers_leave_a_held_node_alone(
    cluster: Cluster, client: KubeClient, node: str, gates: KubeGates
) -> None:
    """A first process holds the node and is killed; an admin has decided about one of the annotations before."""
    karpenter, scale_down = "karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/scale-down-disabled"

    def notes() -> dict[str, str]:
        found = cluster.admin.get(f"/api/v1/nodes/{node}")["metadata"].get("annotations") or {}
        return {key: value for key, value in found.items() if key in (karpenter, scale_down, "nodeagent.org/marked")}

    before = {"labels": {"karpenter.sh/nodepool": "general"}, "annotations": {scale_down: "false"}}
    cluster.admin.patch(f"/api/v1/nodes/{node}", {"metadata": before})
    await gates.hold_machine()
    assert notes() == {scale_down: "false", karpenter: "true", "nodeagent.org/marked": karpenter}
    again = KubeGates(client, node, controls_node=False)
    version = cluster.admin.get(f"/api/v1/nodes/{node}")["metadata"]["resourceVersion"]
    await again.hold_machine()
    assert cluster.admin.get(f"/api/v1/nodes/{node}")["metadata"]["resourceVersion"] == version
    await again.free_machine()
    assert notes() == {scale_down: "false"}


async def test_a_node_that_bootc_operator_updates(cluster: Cluster, node: str, gates: KubeGates) -> None:
    """As its controller does it: the label, the object, and the annotation when the node has its turn."""
    cluster.admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"bootc.dev/managed": ""}}})
    assert await words(gates) == []
    image = f"quay.io/example/os@sha256:{'1' * 64}"
    body: dict[str, Any] = {
        "apiVersion": "node.bootc.dev/v1alpha1",
        "kind": "BootcNode",
        "metadata": {"name": node},
        "spec": {"desiredImage": image, "desiredImageState": "Staged"},
    }
    cluster.admin.create(BOOTC_NODES.format("").rstrip("/"), body)
    assert await words(gates) == []
    turn = {"metadata": {"annotations": {"bootc.dev/in-reboot-slot": ""}}}
    cluster.admin.patch(BOOTC_NODES.format(node), turn)
    assert await words(gates) == [f"BootcOperator: bootc-operator updates the node to {image}"]
    cluster.admin.delete(BOOTC_NODES.format(node))
    assert await words(gates) == []


@pytest.mark.cluster_failure("the Machine of the node is being deleted")
async def test_a_machine_that_is_being_deleted(cluster: Cluster, machine: str, gates: KubeGates) -> None:
    await gates.hold_machine()
    cluster.admin.delete(machine)
    assert [line.partition(":")[0] for line in await words(gates)] == ["NodeLeaving"]
    await gates.free_machine()
    with pytest.raises(Refused, match="is being deleted"):
        await gates.hold_machine()


async def test_a_node_that_is_gone(client: KubeClient) -> None:
    with pytest.raises(Refused) as caught:
        await KubeGates(client, "nowhere", controls_node=False).check()
    assert caught.value.reason == "NodeUnknown"


async def test_what_may_not_be_read_is_no_empty_answer(cluster: Cluster, node: str) -> None:
    """A role that reads nodes, and not the maintenances of them."""
    role = f"reads-nodes-{node}"
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    cluster.admin.create(f"{rbac}/clusterroles", {"metadata": {"name": role}, "rules": rules})
    binding = {
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": "limited", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    cluster.admin.create(f"{rbac}/clusterrolebindings", binding)
    async with client_at(cluster, cluster.kubeconfig("limited")) as client:
        with pytest.raises(Forbidden, match='cannot list resource "nodemaintenances"'):
            await KubeGates(client, node, controls_node=False).read()
