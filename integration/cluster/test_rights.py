# SPDX-License-Identifier: Apache-2.0
"""nodeagent with exactly the rights of packaging/kubernetes: enough for what it does, and for nothing else."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from integration.cluster.api import ApiError
from integration.cluster.cluster import LEASE_PATH, Cluster
from integration.cluster.controller import CONFIGS, MCO, Controller, Memory
from integration.cluster.other_holders import Agent, client_at, lease_of
from integration.cluster.test_machine_config_node import make_machine_config_node
from nodeagent.core.coordination.annotations import read_request
from nodeagent.core.coordination.gates import Gate
from nodeagent.core.coordination.kube_objects import Pod
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import OutOfTurn, Refused
from nodeagent.features.busy_pods.pods import KubeBusyPods
from nodeagent.features.busy_pods.settings import BusyPodSettings
from nodeagent.features.cluster import drain as drain_module
from nodeagent.features.cluster import node_events as events_module
from nodeagent.features.cluster.decide.conditions import NodeState
from nodeagent.features.cluster.decide.drain import DrainPolicy, PodWait, eviction
from nodeagent.features.cluster.decide.machine_config_node import UpdateProgress
from nodeagent.features.cluster.decide.marks import MARKED, MARKS
from nodeagent.features.cluster.drain import DrainRounds, KubeNode
from nodeagent.features.cluster.gates import MACHINES, KubeGates
from nodeagent.features.cluster.handshake import Handshake
from nodeagent.features.cluster.node import MACHINE_CONFIG_NODES, ControlledNodeConditions
from nodeagent.features.cluster.node_events import CONTROLLER, EVENTS, NodeEvents
from nodeagent.features.slots.decide.order import RolloutOrder
from nodeagent.features.slots.decide.pool import SlotKind, SlotPool
from nodeagent.features.slots.leases import KubeSlots
from nodeagent.features.slots.reasons import SlotReason
from nodeagent.features.slots.turn import KubeTurn
from nodeagent.host.clock import SystemClock
from nodeagent.kube import client as client_module
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Forbidden, NotFound
from nodeagent.report.node_events import NodeEvent
from nodeagent.report.status import Status
from nodeagent.update.states import Phase

MANIFESTS: Final = Path(__file__).parents[2] / "packaging" / "kubernetes" / "nodeagent.yaml"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
PATHS: Final = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/{{}}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{{}}/rolebindings",
    "FlowSchema": "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "PriorityLevelConfiguration": "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}
OP: Final = "3f2b"
CONFIG: Final = "rendered-of-rights"
ROLES: Final = ("ClusterRole", "Role")


# For agents that do not evict with the credentials of their kubelets.
EVICTIONS: Final = MANIFESTS.with_name("evictions.yaml")


def documents() -> list[dict[str, Any]]:
    files = MANIFESTS, EVICTIONS
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


def path_of(document: dict[str, Any]) -> str:
    return PATHS[document["kind"]].format(document["metadata"].get("namespace", ""))


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "POLL", 0.2)
    monkeypatch.setattr(drain_module, "SETTLE", 0.3)
    monkeypatch.setattr(events_module, "WRITE_EVERY", 0.0)
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.01)


@pytest.fixture(scope="module")
def installed(control_plane: Cluster) -> Cluster:
    for document in documents():
        path = path_of(document)
        if control_plane.admin.find(f"{path}/{document['metadata']['name']}") is None:
            control_plane.admin.create(path, document)
    return control_plane


async def in_force(cluster: Cluster) -> None:
    """The policy is compiled a moment after its creation; until then it rejects nothing."""
    probe = cluster.api("nodeagent:probe", ["nodeagent"])
    async with asyncio.timeout(30):
        while True:
            try:
                probe.create(LEASE_PATH, {"metadata": {"name": "node-not-mine"}})
                cluster.admin.delete(f"{LEASE_PATH}/node-not-mine")
            except ApiError as error:
                if error.status == 403 and "this agent is that of node" in str(error):
                    return
            await asyncio.sleep(0.2)


@asynccontextmanager
async def by_token(cluster: Cluster, node: str) -> AsyncIterator[KubeClient]:
    uid = cluster.admin.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
    bound = {"kind": "Node", "apiVersion": "v1", "name": node, "uid": uid}
    request = {"spec": {"expirationSeconds": 600, "boundObjectRef": bound}}
    answer = cluster.admin.create("/api/v1/namespaces/nodeagent/serviceaccounts/nodeagent/token", request)
    token = cluster.directory / f"{node}.token"
    token.write_text(answer["status"]["token"])
    async with client_at(cluster, cluster.kubeconfig(f"token-of-{node}", token_file=token)) as client:
        yield client


@asynccontextmanager
async def by_certificate(cluster: Cluster, node: str) -> AsyncIterator[KubeClient]:
    async with client_at(cluster, cluster.kubeconfig(f"nodeagent:{node}", ["nodeagent"])) as client:
        yield client


def make_pod(cluster: Cluster, name: str, node: str, namespace: str = "default", **meta: Any) -> dict[str, Any]:
    pod = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}
    body = {"metadata": {"name": name, **meta}, "spec": pod}
    return cluster.admin.create(f"/api/v1/namespaces/{namespace}/pods", body)


HOOKS: Final = [{"name": "EtcdQuorumOperator", "owner": "clusteroperator/etcd"}]


def make_machine(cluster: Cluster, name: str, node: str) -> None:
    spec = {"lifecycleHooks": {"preDrain": HOOKS}, "providerID": "aws:///x", "taints": []}
    machine = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "metadata": {"name": name, "labels": {"role": "worker"}},
        "spec": spec,
    }
    cluster.admin.create(MACHINES.format("default", "").rstrip("/"), machine)
    status = {"status": {"nodeRef": {"kind": "Node", "name": node}}}
    cluster.admin.patch(MACHINES.format("default", name) + "/status", status)


def scene(cluster: Cluster, node: str) -> None:
    """A Machine, a MachineConfigNode and two pods for the node, which bootc-operator manages."""
    make_machine(cluster, node, node)
    make_machine_config_node(cluster, node)
    notes = {"machine.openshift.io/machine": f"default/{node}", MCO + "desiredConfig": CONFIG}
    labels = {"bootc.dev/managed": "true"}
    cluster.admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": notes, "labels": labels}})
    if cluster.admin.find(f"{CONFIGS}/{CONFIG}") is None:
        Controller(cluster, node).make(CONFIG)
    make_pod(cluster, node, node)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gone", "uid": "u", "controller": True}
    make_pod(cluster, f"{node}-orphan", node, ownerReferences=[owner])


async def config_of(client: KubeClient, node: str) -> None:
    """The config of the node is fetched, and its state reported."""
    changed = asyncio.Event()
    handshake = Handshake(client, node, Memory(), changed=lambda _: changed.set())
    handshake.report(Status(Phase.WRITING, "Waiting", "for an operator", current=CONFIG))
    running = asyncio.create_task(handshake.run())
    try:
        await changed.wait()
        assert await handshake.desired() is not None
        while read_request(await client.node(node)).state != "Working":
            await asyncio.sleep(0.05)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def everything(client: KubeClient, node: str) -> None:
    """All that an update asks of the cluster."""
    gates = KubeGates(client, node, controls_node=True)
    await gates.check()
    busy = KubeBusyPods(client, node, BusyPodSettings(selectors=("job notin (image)",)))
    assert f"default/{node}" in map(str, await busy.running())
    slots = KubeSlots(client, HostIdentity(node, "host-a"), SlotPool(node, SlotKind.DISRUPT, 1), SystemClock())
    paused = KubeSlots(
        client, HostIdentity(node, "host-a"), SlotPool(f"{node}-p", SlotKind.DISRUPT, 1, 1), SystemClock()
    )
    await paused.acquire("nodeagent", OP, "update")
    await paused.release(OP)
    await slots.acquire("nodeagent", "given-up", "update")
    await slots.acquire("nodeagent", OP, "update")
    agent = Agent(client, HostIdentity(node, "host-a"))
    await agent.lease.acquire("nodeagent", OP, "update")
    await gates.hold_machine()
    update = UpdateProgress(Phase.DRAINING, "", CONFIG)
    conditions = ControlledNodeConditions(client, node, SystemClock())
    await conditions.publish(NodeState("nodeagent", "update", draining=True, progress=update))
    events = NodeEvents(client, node)
    for _ in range(2):
        await events.write(NodeEvent("DrainRequested", "DrainRounds", "update"), SystemClock().monotonic())
    port = KubeNode(client, node, SystemClock(), check_lease=agent.lease.check)
    await port.drain(OP, 8)
    await agent.lease.before_reboot(OP, 1800)
    await port.uncordon(OP)
    await gates.free_machine()
    await config_of(client, node)
    await agent.lease.release(OP)
    await slots.release(OP)


@pytest.mark.parametrize("connect", [by_token, by_certificate])
async def test_the_rights_are_enough(installed: Cluster, node: str, connect: Any) -> None:
    await in_force(installed)
    scene(installed, node)
    async with connect(installed, node) as client:
        await everything(client, node)
    for name in (node, f"{node}-orphan"):
        assert installed.admin.find(f"/api/v1/namespaces/default/pods/{name}") is None
    machine = installed.admin.get(MACHINES.format("default", node))
    assert machine["spec"]["lifecycleHooks"]["preDrain"] == HOOKS, "its own hook went, and no other one"
    notes = installed.admin.get(f"/api/v1/nodes/{node}")["metadata"]["annotations"]
    assert [key for key in notes if key in (*MARKS, MARKED)] == [], "and so did its marks"


def evict(pod: Any, *, by_agent: bool = True, **changes: Any) -> dict[str, Any]:
    return {**eviction(pod, by_agent=by_agent), **changes}


def by_kubelet(cluster: Cluster, node: str) -> KubeClient:
    return client_at(cluster, cluster.kubeconfig(f"system:node:{node}", ["system:nodes"]))


@pytest.mark.finding("cluster: rights of an agent", "An agent evicts pods of its own node only, each by its uid.")
async def test_a_kubelet_evicts_pods_of_its_own_node_only(installed: Cluster, node: str, make_node: Any) -> None:
    """With whose credentials an agent does, so that it needs no right of its own."""
    rules = [rule for document in yaml.safe_load_all(MANIFESTS.read_text()) for rule in document.get("rules", ())]
    assert not any("pods/eviction" in rule["resources"] for rule in rules)
    theirs, mine, floating = (
        make_pod(installed, f"{name}-{node}", of) for name, of in (("t", make_node()), ("m", node), ("f", ""))
    )
    pods = "/api/v1/namespaces/default/pods"
    async with by_kubelet(installed, node) as kubelet:
        for pod in (theirs, floating):
            with pytest.raises(Forbidden, match=f"node {node} can only evict pods with"):
                await kubelet.create(f"{pods}/{pod['metadata']['name']}/eviction", evict(pod, by_agent=False))
    async with by_certificate(installed, node) as client, by_kubelet(installed, node) as kubelet:
        work = DrainRounds(client, node, SystemClock(), DrainPolicy(), kubelet)
        # The API server sees a new pod a moment later.
        async with asyncio.timeout(60):
            while installed.admin.find(f"{pods}/{mine['metadata']['name']}") is not None:
                await work.round(yes)
                assert [pod for pod in work.remaining if pod.cause is PodWait.FORBIDDEN] == []
                await asyncio.sleep(0.2)
    for pod in (theirs, floating):
        assert "deletionTimestamp" not in installed.admin.get(f"{pods}/{pod['metadata']['name']}")["metadata"]


@pytest.mark.finding("cluster: rights of an agent", "An agent evicts pods of its own node only, each by its uid.")
@pytest.mark.parametrize("connect", [by_token, by_certificate])
async def test_an_agent_evicts_pods_of_its_own_node_only(
    installed: Cluster, node: str, make_node: Any, connect: Any
) -> None:
    await in_force(installed)
    other = make_node()
    space = f"evict-{node}"
    installed.admin.create("/api/v1/namespaces", {"metadata": {"name": space}})
    await evictions_in_force(installed, space, other)
    pods = f"/api/v1/namespaces/{space}/pods"
    theirs, mine = make_pod(installed, "theirs", other, space), make_pod(installed, "mine", node, space)
    floating = make_pod(installed, "floating", "", space)
    refused = f'this agent is that of node "{node}" and may evict'
    async with connect(installed, node) as client:
        for pod in (theirs, floating):
            with pytest.raises(Forbidden, match=refused):
                await client.create(f"{pods}/{pod['metadata']['name']}/eviction", evict(pod))
        for options in (None, {}, {"preconditions": {"uid": theirs["metadata"]["uid"]}}):
            body = evict(mine, deleteOptions=options)
            with pytest.raises(Forbidden, match=refused):
                await client.create(f"{pods}/mine/eviction", body)
        # With the label, the API server compares it.
        bare = evict(mine, metadata={"name": "mine", "namespace": space})
        with pytest.raises(Forbidden, match="an agent marks its evictions"):
            await client.create(f"{pods}/mine/eviction", bare)
        await client.create(f"{pods}/mine/eviction", evict(mine))
    assert sorted(pod["metadata"]["name"] for pod in installed.admin.get(pods)["items"]) == [
        "floating",
        "probe",
        "theirs",
    ]
    # Others are not concerned, with the label or without, also where no pod is left.
    installed.admin.create(f"{pods}/theirs/eviction", evict(theirs, deleteOptions=None))
    installed.admin.create("/api/v1/namespaces", {"metadata": {"name": f"{space}-empty"}})
    nothing = evict(theirs, metadata={"name": "theirs", "namespace": f"{space}-empty"})
    with pytest.raises(ApiError) as caught:
        installed.admin.create(f"/api/v1/namespaces/{space}-empty/pods/theirs/eviction", nothing)
    assert caught.value.status == 404


async def evictions_in_force(cluster: Cluster, space: str, node: str) -> None:
    """As ``in_force``. Until the API server has seen the pod, the policy does not know its node."""
    probe = cluster.api("nodeagent:probe", ["nodeagent"])
    pod = make_pod(cluster, "probe", node, space)
    async with asyncio.timeout(30):
        while True:
            try:
                probe.create(f"/api/v1/namespaces/{space}/pods/probe/eviction", evict(pod))
                pod = make_pod(cluster, "probe", node, space)
            except ApiError as error:
                if error.status == 403 and "may evict the pods of that node only" in str(error):
                    return
            await asyncio.sleep(0.2)


async def yes() -> None: ...


@pytest.mark.finding("cluster: rights of an agent", "An agent evicts pods of its own node only, each by its uid.")
async def test_a_drain_by_an_agent_meets_no_refusal_of_the_policy(
    installed: Cluster, node: str, make_node: Any
) -> None:
    """Beside pods of another node in the same namespace, with which each eviction is compared."""
    await in_force(installed)
    space, other = f"many-{node}", make_node()
    installed.admin.create("/api/v1/namespaces", {"metadata": {"name": space}})
    for number in range(60):
        make_pod(installed, f"p{number}", node if number < 10 else other, space)
    async with by_token(installed, node) as client:
        work = DrainRounds(client, node, SystemClock(), DrainPolicy())
        async with asyncio.timeout(60):  # a busy machine may not answer a request in time: it is made again
            while not await work.round(yes):
                assert [pod for pod in work.remaining if pod.cause is PodWait.FORBIDDEN] == []
                await asyncio.sleep(0.2)
                terminated(installed, space)
    left = installed.admin.get(f"/api/v1/namespaces/{space}/pods")["items"]
    assert [pod["spec"]["nodeName"] for pod in left] == [other] * 50


def terminated(cluster: Cluster, space: str) -> None:
    """What a kubelet does with pods that are terminating."""
    pods = f"/api/v1/namespaces/{space}/pods"
    for pod in cluster.admin.get(pods)["items"]:
        if pod["metadata"].get("deletionTimestamp"):
            cluster.admin.end_pod(f"{pods}/{pod['metadata']['name']}")


@pytest.mark.finding(
    "cluster: rights of an agent",
    "An agent changes its own hook on the Machine of its own Node, and nothing else of any Machine.",
)
@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"providerID": "aws:///y"}},
        {"spec": {"taints": None}},
        {"spec": {"more": 1}},
        {"spec": {"lifecycleHooks": {"preDrain": []}}},
        {"spec": {"lifecycleHooks": {"preDrain": [*HOOKS, {"name": "x", "owner": "stranger"}]}}},
        {"spec": {"lifecycleHooks": {"preTerminate": [{"name": "x", "owner": "nodeagent"}]}}},
        {"metadata": {"labels": {"role": "infra"}}},
        {"metadata": {"annotations": {"machine.openshift.io/exclude-node-draining": ""}}},
        {"metadata": {"finalizers": ["example.com/x"]}},
    ],
    ids=str,
)
async def test_an_agent_changes_nothing_of_its_machine_but_its_hook(
    installed: Cluster, node: str, change: dict[str, Any]
) -> None:
    await in_force(installed)
    make_machine(installed, node, node)
    async with by_token(installed, node) as client:
        with pytest.raises(Forbidden, match="nothing of its Machine but its own hook"):
            await client.patch(MACHINES.format("default", node), change)


@pytest.mark.finding(
    "cluster: rights of an agent",
    "An agent changes its own hook on the Machine of its own Node, and nothing else of any Machine.",
)
async def test_an_agent_changes_the_machine_of_its_own_node_only(installed: Cluster, node: str, make_node: Any) -> None:
    await in_force(installed)
    other = make_node()
    for name, of in ((node, other), (f"{node}-none", "")):  # a name that is its own does not help
        make_machine(installed, name, of)
        notes = {"machine.openshift.io/machine": f"default/{name}"}
        installed.admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": notes}})
        async with by_token(installed, node) as client:
            with pytest.raises(Forbidden, match="may not write machines"):
                await KubeGates(client, node, controls_node=True).hold_machine()
        assert installed.admin.get(MACHINES.format("default", name))["spec"]["lifecycleHooks"]["preDrain"] == HOOKS
    assert lease_of(installed, node) is None


@pytest.mark.parametrize("connect", [by_token, by_certificate])
async def test_an_agent_writes_its_own_node_and_lease_only(
    installed: Cluster, node: str, make_node: Any, connect: Any
) -> None:
    await in_force(installed)
    other = make_node()
    async with connect(installed, node) as client:
        with pytest.raises(Forbidden, match=f'this agent is that of node "{node}"'):
            await client.patch(f"/api/v1/nodes/{other}", {"spec": {"unschedulable": True}})
        with pytest.raises(Forbidden, match="may not write leases"):
            await Agent(client, HostIdentity(other, "host-a")).lease.acquire("nodeagent", OP, "not mine")
        theirs = installed.admin.create(LEASE_PATH, {"metadata": {"name": f"node-{other}"}, "spec": {}})
        with pytest.raises(Forbidden, match="may not write leases"):
            await client.delete(f"{LEASE_PATH}/node-{other}", uid=theirs["metadata"]["uid"])
        taint = {"key": "x", "effect": "NoSchedule"}
        for patch in ({"metadata": {"labels": {"node-role.kubernetes.io/infra": ""}}}, {"spec": {"taints": [taint]}}):
            with pytest.raises(Forbidden, match="labels and taints"):
                await client.patch(f"/api/v1/nodes/{node}", patch)


@pytest.mark.parametrize("path", ["", "/status"])
async def test_an_agent_writes_its_reports_and_no_requests(installed: Cluster, node: str, path: str) -> None:
    await in_force(installed)
    Controller(installed, node).annotate(desiredConfig=CONFIG, lastAppliedDrain="uncordon-x", other="o")
    ours = {MCO + key: "x" for key in ("currentConfig", "state", "reason", "desiredDrain")}
    theirs = {MCO + key for key in ("desiredConfig", "lastAppliedDrain", "desiredImage", "other")}

    def changes(annotations: dict[str, str | None]) -> dict[str, Any]:
        return {"metadata": {"annotations": annotations}}

    async with by_token(installed, node) as client:
        url = f"/api/v1/nodes/{node}{path}"
        for value in ("1", "2", None):
            await client.patch(url, changes({**dict.fromkeys(ours, value), "nodeagent.org/retry": value}))
        for key in (*theirs, "kubernetes.io/stranger", "nodeagent.organic/x"):
            with pytest.raises(Forbidden, match="annotations of others"):
                await client.patch(url, changes({key: "mine"}))
        with pytest.raises(Forbidden, match="annotations of others"):
            await client.patch(url, changes({MCO + "desiredConfig": None}))
    notes = Controller(installed, node).notes()
    assert notes == {"desiredConfig": CONFIG, "lastAppliedDrain": "uncordon-x", "other": "o"}


@pytest.mark.finding(
    "cluster: signs for other actors",
    "A process that was started again takes back the annotations of its predecessor, and keeps those of an admin.",
)
async def test_an_agent_takes_back_its_own_marks_only(installed: Cluster, node: str) -> None:
    await in_force(installed)
    ours, theirs = MARKS
    url = f"/api/v1/nodes/{node}"
    installed.admin.patch(url, {"metadata": {"annotations": {theirs: "true"}}})
    async with by_token(installed, node) as client:
        for changes in ({ours: "false"}, {theirs: "false"}, {theirs: None}):
            with pytest.raises(Forbidden, match="annotations of others"):
                await client.patch(url, {"metadata": {"annotations": changes}})
        await client.patch(url, {"metadata": {"annotations": {ours: "true", MARKED: ours}}})
        with pytest.raises(Forbidden, match="annotations of others"):
            await client.patch(url, {"metadata": {"annotations": {theirs: None, MARKED: None}}})
        await client.patch(url, {"metadata": {"annotations": {ours: None, MARKED: None}}})
    notes = installed.admin.get(url)["metadata"]["annotations"]
    assert (notes[theirs], ours in notes) == ("true", False)


async def test_a_slot_is_not_taken_from_another_node_nor_for_it(installed: Cluster, node: str, make_node: Any) -> None:
    await in_force(installed)
    other, pool = make_node(), SlotPool(node, SlotKind.DISRUPT, 1)
    leases = "/apis/coordination.k8s.io/v1/namespaces/nodeagent/leases"
    async with by_token(installed, other) as theirs, by_token(installed, node) as client:
        name = await KubeSlots(theirs, HostIdentity(other, "host-b"), pool, SystemClock()).acquire("x", OP, "update")
        held = installed.admin.get(f"{leases}/{name}")
        with pytest.raises(Forbidden, match="may not write leases"):
            await client.patch(f"{leases}/{name}", {"spec": {"holderIdentity": f"{node}/{OP}"}})
        with pytest.raises(Forbidden, match="may not write leases"):
            await client.delete(f"{leases}/{name}", uid=held["metadata"]["uid"])
        stranger = KubeSlots(client, HostIdentity(other, "host-a"), SlotPool(node, SlotKind.STAGE, 1), SystemClock())
        with pytest.raises(Forbidden, match="may not write leases"):
            await stranger.acquire("x", OP, "for another")
        assert installed.admin.get(f"{leases}/{name}") == held
        # A slot that rests after its release is neither deleted nor changed by another agent.
        pausing = SlotPool(node, SlotKind.DISRUPT, 1, 3600)
        await KubeSlots(theirs, HostIdentity(other, "host-b"), pausing, SystemClock()).release(OP)
        rests = installed.admin.get(f"{leases}/{name}")
        for agent in (client, theirs):
            with pytest.raises(Forbidden, match="may not write leases"):
                await agent.delete(f"{leases}/{name}", uid=held["metadata"]["uid"])
            with pytest.raises(Forbidden, match="may not write leases"):
                note = {"nodeagent.org/released": "2999-01-01T00:00:00Z n"}
                await agent.patch(f"{leases}/{name}", {"metadata": {"annotations": note}})
        assert installed.admin.get(f"{leases}/{name}") == rests


@pytest.mark.finding("cluster: flow control of agents", "Agents have a share of the API server of their own.")
@pytest.mark.parametrize("connect", [by_token, by_certificate])
async def test_agents_have_a_share_of_their_own(installed: Cluster, node: str, connect: Any) -> None:
    counter = re.compile(r'apiserver_flowcontrol_dispatched_requests_total\{flow_schema="nodeagent".* (\d+)')

    def dispatched() -> int:
        return sum(int(count) for count in counter.findall(installed.admin.get("/metrics")["text"]))

    before = dispatched()
    async with connect(installed, node) as client, asyncio.timeout(30):
        # The API server applies a new FlowSchema a moment after its creation.
        while dispatched() == before:
            await client.node(node)
            await asyncio.sleep(0.2)


class NotYet(KubeTurn):
    """It is never the turn of this node."""

    async def check(self) -> Gate:
        # What the check of a cluster without pools of machines leaves for the verdict.
        self._pool.keep(await self._client.node(self._node), ())
        return Gate(SlotReason.POOL_ORDER, "pool a is updated before pool b, and is not complete: n1")


async def test_a_slot_is_released_with_a_verdict_for_others(installed: Cluster, node: str) -> None:
    await in_force(installed)
    leases = "/apis/coordination.k8s.io/v1/namespaces/nodeagent/leases"
    async with by_token(installed, node) as client:
        for pause in (0.0, 3600.0):
            pool = SlotPool(f"{node}-{pause:g}", SlotKind.DISRUPT, 1, pause)
            turn = NotYet(client, node, RolloutOrder(("a", "b")), SystemClock())
            slots = KubeSlots(client, HostIdentity(node, "host-a"), pool, SystemClock(), turn=turn)
            for _ in range(2):
                with pytest.raises(OutOfTurn, match="pool a is updated before pool b"):
                    await slots.acquire("nodeagent", OP, "update")
            released = installed.admin.get(f"{leases}/{pool.lease(0)}")
            assert "holderIdentity" not in released["spec"]
            assert released["metadata"]["annotations"].keys() == {"nodeagent.org/turn"}
            # Another process, which has no turn to check, takes it.
            await KubeSlots(client, HostIdentity(node, "host-a"), pool, SystemClock()).acquire("x", OP, "update")


@pytest.mark.parametrize("connect", [by_token, by_certificate])
async def test_an_agent_writes_events_of_its_own_node_only(
    installed: Cluster, node: str, make_node: Any, connect: Any
) -> None:
    await in_force(installed)
    other = make_node()
    event = {
        "eventTime": "2026-11-21T03:00:00.000000Z",
        "reportingController": CONTROLLER,
        "reportingInstance": node,
        "type": "Normal",
        "reason": "Drained",
        "action": "DrainRounds",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": other},
    }
    theirs = {**event, "metadata": {"name": f"{other}.1"}, "reportingController": "kubelet"}
    installed.admin.create(EVENTS, theirs)
    async with connect(installed, node) as client:
        for name in (node, f"node-{node}"):  # names that are its own elsewhere do not help
            with pytest.raises(Forbidden, match=f'this agent is that of node "{node}"'):
                await client.create(EVENTS, {**event, "metadata": {"name": name, "namespace": "default"}})
        await NodeEvents(client, node).write(NodeEvent("Drained", "DrainRounds", "update"), SystemClock().monotonic())
    async with connect(installed, other) as client:
        series = {"count": 2, "lastObservedTime": "2026-11-21T03:00:00.000000Z"}
        with pytest.raises(Forbidden, match="may not write events"):
            await client.patch(f"{EVENTS}/{other}.1", {"series": series})


async def test_an_agent_writes_the_status_of_its_own_machine_config_node_only(
    installed: Cluster, node: str, make_node: Any
) -> None:
    await in_force(installed)
    other = make_node()
    for name in (node, other):
        make_machine_config_node(installed, name)
    status = {"status": {"configVersion": {"desired": "rendered-x"}}}
    async with by_certificate(installed, node) as client:
        await client.patch(f"{MACHINE_CONFIG_NODES}/{node}/status", status)
        with pytest.raises(Forbidden, match=f'this agent is that of node "{node}"'):
            await client.patch(f"{MACHINE_CONFIG_NODES}/{other}/status", status)
        with pytest.raises(Forbidden):
            await client.patch(f"{MACHINE_CONFIG_NODES}/{node}", {"spec": {"configVersion": {"desired": "rendered-x"}}})


async def test_a_certificate_that_names_no_node_writes_nothing(installed: Cluster, node: str) -> None:
    await in_force(installed)
    async with client_at(installed, installed.kubeconfig("stranger", ["nodeagent"])) as client:
        with pytest.raises(Forbidden, match='that of node ""'):
            await client.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})


def rights() -> Iterator[tuple[str, str]]:
    for document in documents():
        if document["kind"] in ROLES:
            for rule in document["rules"]:
                yield from ((resource, verb) for resource in rule["resources"] for verb in rule["verbs"])


# Without it, an agent polls (``test_node_watch``).
OPTIONAL: Final = {("nodes", "watch")}


@pytest.mark.parametrize(("resource", "verb"), sorted(set(rights()) - OPTIONAL))
@pytest.mark.cluster_failure("credentials are rotated, revoked or expire")
async def test_each_right_is_needed_and_a_missing_one_is_named(
    installed: Cluster, node: str, resource: str, verb: str
) -> None:
    user = f"without-{verb}-{resource.replace('/', '-')}"
    for document in copy.deepcopy(documents()):
        if document["kind"] not in (*ROLES, "RoleBinding", "ClusterRoleBinding"):
            continue
        document["metadata"]["name"] += f"-{user}"
        for rule in document.get("rules", ()):
            if resource in rule["resources"] and verb in rule["verbs"]:
                rule["verbs"].remove(verb)
        if "rules" in document:
            document["rules"] = [rule for rule in document["rules"] if rule["verbs"]]
        if "roleRef" in document:
            document["roleRef"]["name"] += f"-{user}"
            document["subjects"] = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
        installed.admin.create(path_of(document), document)
    scene(installed, node)
    async with client_at(installed, installed.kubeconfig(user)) as client:
        await until_bound(client, resource, verb)
        with pytest.raises(Refused) as caught:
            await asyncio.wait_for(everything(client, node), 180)
    if resource == "pods/eviction":  # one pod that may not go is the pod's reason, not the end of the drain
        assert caught.value.reason == "DrainTimedOut"
    else:
        assert isinstance(caught.value, Forbidden)
    assert f'cannot {verb} resource "{resource}"' in caught.value.message


async def until_bound(client: KubeClient, resource: str, verb: str) -> None:
    """New roles are in force a moment after they were made."""
    async with asyncio.timeout(20):
        while True:
            try:
                if (resource, verb) == ("leases", "get"):
                    await client.objects("/api/v1/pods", Pod)
                else:
                    await client.get(f"{LEASE_PATH}/node-none")
            except Forbidden:
                await asyncio.sleep(0.1)
                continue
            except NotFound:
                pass
            return
