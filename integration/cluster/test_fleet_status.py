# SPDX-License-Identifier: Apache-2.0
"""`nodeagent fleet status` on a real API server: pools and nodes as a machine-config-operator would have them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from integration.cluster.api import ApiError
from integration.cluster.cluster import LEASES, Cluster
from integration.cluster.controller import Controller
from integration.cluster.other_holders import Agent, client_of, foreign
from nodeagent.cli.main import main
from nodeagent.core.coordination.kube_objects import MAINTENANCES
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.features.slots.objects import OS_CONFIGS, POOLS

VIEWER: Final = Path(__file__).parents[2] / "packaging" / "kubernetes" / "fleet-viewer.yaml"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
ROLE: Final = "test.nodeagent.org/pool"
OLD, NEW = "rendered-old", "rendered-new"


class Fleet:
    """Pools of this test only: nodes of other tests are in none of them."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str], prefix: str) -> None:
        self.admin = cluster.admin
        self._cluster = cluster
        self._capsys = capsys
        self._prefix = prefix
        self._kubeconfig = cluster.kubeconfig("fleet-viewer")
        self.pools: list[str] = []

    def pool(self, word: str, target: str = NEW, **spec: Any) -> str:
        name = f"{self._prefix}-{word}"
        kind = {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool"}
        selector = {"nodeSelector": {"matchLabels": {ROLE: name}}}
        wanted = {"configuration": {"name": target}, **selector, **spec}
        made = self.admin.create(POOLS, {**kind, "metadata": {"name": name}, "spec": wanted})
        self.pools.append(name)
        seen = {"status": {"observedGeneration": made["metadata"]["generation"]}}
        self.admin.patch(f"{POOLS}/{name}/status", seen)
        return name

    def node(self, pool: str, word: str, current: str = NEW, desired: str = NEW, state: str = "Done") -> str:
        name = f"{self._prefix}-{word}"
        self._cluster.node(name, labels={ROLE: pool})
        Controller(self._cluster, name).annotate(currentConfig=current, desiredConfig=desired, state=state)
        return name

    def status(self, *words: str) -> tuple[int, dict[str, Any]]:
        code = main(["fleet", "status", "--json", "--kubeconfig", str(self._kubeconfig), *words])
        printed = self._capsys.readouterr()
        answer: dict[str, Any] = json.loads(printed.out or printed.err)
        return code, answer

    def flags(self, name: str) -> list[str]:
        _, answer = self.status()
        members = [member for pool in answer["pools"] for member in pool["members"]]
        return [flag["message"] for member in members if member["name"] == name for flag in member["flags"]]


@pytest.fixture(autouse=True)
def viewer(control_plane: Cluster) -> None:
    """Exactly the rights that the manifest has."""
    role = yaml.safe_load(VIEWER.read_text())
    if control_plane.admin.find(f"{RBAC}/clusterroles/{role['metadata']['name']}") is not None:
        return
    control_plane.admin.create(f"{RBAC}/clusterroles", role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role["metadata"]["name"]}
    subject = {"kind": "User", "name": "fleet-viewer", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "fleet-viewer"}, "roleRef": reference, "subjects": [subject]}
    control_plane.admin.create(f"{RBAC}/clusterrolebindings", binding)


@pytest.fixture
def fleet(cluster: Cluster, capsys: pytest.CaptureFixture[str], node: str) -> Iterator[Fleet]:
    made = Fleet(cluster, capsys, node)
    yield made
    for name in made.pools:  # an empty cluster has no pools, which another test is about
        cluster.admin.delete(f"{POOLS}/{name}")


def wait_allowed(fleet: Fleet) -> tuple[int, dict[str, Any]]:
    """A new role is in force a moment after it was made."""
    while True:
        code, answer = fleet.status()
        if answer.get("reason") != "KubeForbidden" and not answer.get("unknown"):
            return code, answer


def test_complete_only_when_every_node_of_every_pool_is_there(fleet: Fleet, cluster: Cluster) -> None:
    one, two = fleet.pool("one"), fleet.pool("two", paused=True)
    fleet.node(one, "a")
    late = Controller(cluster, fleet.node(one, "b", OLD, NEW, "Working"))
    behind = Controller(cluster, fleet.node(two, "c", OLD, OLD))
    code, answer = wait_allowed(fleet)
    pools = {pool["name"]: pool for pool in answer["pools"]}
    assert (code, answer["complete"], answer["unknown"]) == (4, False, [])
    assert (pools[one]["nodes"], pools[one]["updated"], pools[one]["updating"]) == (2, 1, 1)
    assert (pools[two]["paused"], pools[two]["pending"], pools[two]["complete"]) == (True, 1, False)
    late.annotate(currentConfig=NEW, state="Done")
    assert fleet.status()[0] == 4, "the paused pool is behind"
    behind.annotate(currentConfig=NEW, desiredConfig=NEW)
    code, answer = fleet.status()
    assert (code, answer["complete"]) == (0, True)
    late.annotate(state="Degraded", reason="Drifted: 2 files")
    code, answer = fleet.status()
    assert code == 1
    (bad,) = [member for pool in answer["pools"] for member in pool["members"] if member["progress"] == "degraded"]
    assert bad["reason"] == "Drifted: 2 files"
    cluster.admin.patch(f"{POOLS}/{one}", {"spec": {"configuration": {"name": "rendered-newer"}}})
    late.annotate(state="Done", reason="")
    assert fleet.status()[0] == 4, "rendered again, and no node has the new config yet"


@pytest.mark.finding("peers: image mode", "A node in image mode is updated when it has the image of its pool.")
def test_a_pool_in_image_mode(fleet: Fleet, cluster: Cluster) -> None:
    pool = fleet.pool("image")
    there = Controller(cluster, fleet.node(pool, "i"))
    wait_allowed(fleet)
    assert fleet.status()[0] == 0
    named = {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig"}
    spec = {"machineConfigPool": {"name": pool}}
    cluster.admin.create(OS_CONFIGS, {**named, "metadata": {"name": pool}, "spec": spec})
    try:
        assert fleet.status()[0] == 4, "its image is still built"
        built = {"status": {"currentImagePullSpec": "registry/os@sha256:a"}}
        cluster.admin.patch(f"{OS_CONFIGS}/{pool}/status", built)
        assert fleet.status()[0] == 4, "the node does not have it"
        there.annotate(desiredImage="registry/os@sha256:a")
        assert fleet.status()[0] == 4
        there.annotate(currentImage="registry/os@sha256:a")
        assert fleet.status()[0] == 0
    finally:
        cluster.admin.delete(f"{OS_CONFIGS}/{pool}")
    assert fleet.status()[0] == 4, "about to leave image mode"


async def test_who_is_in_the_way(fleet: Fleet, cluster: Cluster) -> None:
    name = fleet.node(fleet.pool("one"), "a")
    await asyncio.to_thread(wait_allowed, fleet)

    async def flags() -> list[str]:
        return await asyncio.to_thread(fleet.flags, name)

    assert await flags() == []
    async with client_of(cluster) as client:
        agent = Agent(client, HostIdentity(name, "host-a"))
        await agent.lease.acquire("nodeagent", "u1", "update to x")
        assert await flags() == [], "an update is no flag"
        await agent.lease.release("u1")
    foreign(cluster, name)
    (held,) = await flags()
    assert held.startswith("node-maintenance holds the node lease since ")
    cluster.admin.delete(f"/apis/coordination.k8s.io/v1/namespaces/{LEASES}/leases/node-{name}")
    cluster.admin.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
    assert await flags() == ["the node is cordoned, and not by an update"]
    cluster.admin.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}})
    kind = {"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance"}
    spec = {"nodeName": name, "reason": "disks"}
    cluster.admin.create(MAINTENANCES, {**kind, "metadata": {"name": f"of-{name}"}, "spec": spec})
    assert await flags() == [f"NodeMaintenance of-{name} (disks)"]


def test_without_pools_nodes_go_by_their_label(fleet: Fleet, cluster: Cluster) -> None:
    name = fleet.node("", "a", OLD, NEW, "Working")
    cluster.admin.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"nodeagent.org/pool": name}}})
    code, answer = wait_allowed(fleet)
    mine = {pool["name"]: pool for pool in answer["pools"]}[name]
    assert (mine["target"], mine["updating"], code in (1, 4)) == (NEW, 1, True)
    Controller(cluster, name).annotate(currentConfig=NEW, state="Done")
    _, answer = fleet.status()
    assert {pool["name"]: pool["complete"] for pool in answer["pools"]}[name] is True


def test_the_rights_of_the_manifest_are_no_more_than_that(cluster: Cluster, node: str) -> None:
    viewer = cluster.api("fleet-viewer")
    for path in ("/api/v1/pods", "/api/v1/secrets", "/apis/machineconfiguration.openshift.io/v1/machineconfigs"):
        with pytest.raises(ApiError) as caught:
            viewer.get(path)
        assert caught.value.status == 403
    with pytest.raises(ApiError, match="cannot patch"):
        viewer.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
