# SPDX-License-Identifier: Apache-2.0
"""Pools in order and a halt, on a real API server: several agents with exactly the rights of packaging/kubernetes.

The agents report their states with the handshake of the daemon. The judge is the API server's own audit log.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from integration.cluster.cluster import Cluster
from integration.cluster.controller import Controller
from integration.cluster.controller import Memory as Fetched
from integration.cluster.other_holders import client_at, seconds, written
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import Refused, Retryable
from nodeagent.features.cluster import handshake as module
from nodeagent.features.cluster.handshake import Handshake
from nodeagent.features.slots.decide import turn
from nodeagent.features.slots.decide.order import RolloutOrder
from nodeagent.features.slots.decide.pool import SlotKind, SlotPool
from nodeagent.features.slots.leases import KubeSlots
from nodeagent.features.slots.turn import KubeTurn
from nodeagent.host.clock import SystemClock
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Forbidden
from nodeagent.report.status import Status
from nodeagent.update.states import Phase

MANIFESTS: Final = Path(__file__).parents[2] / "packaging" / "kubernetes"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
STATE: Final = "machineconfiguration.openshift.io/state"
CURRENT: Final = "machineconfiguration.openshift.io/currentConfig"
OLD, NEW = "rendered-old", "rendered-new"
OP: Final = "3f2b"
PAUSE: Final = 3.0
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_FIRST_PAUSE", 0.2)
    # The states of these tests change sooner than those of a fleet.
    monkeypatch.setattr(turn, "COUNTS", 1.0)
    monkeypatch.setattr(turn, "SHOWN", 2.0)


def install(cluster: Cluster, manifest: str) -> None:
    paths = {
        "ClusterRole": f"{RBAC}/clusterroles",
        "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
        "Role": f"{RBAC}/namespaces/{{}}/roles",
        "RoleBinding": f"{RBAC}/namespaces/{{}}/rolebindings",
        "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
        "Namespace": "/api/v1/namespaces",
    }
    for document in yaml.safe_load_all((MANIFESTS / manifest).read_text()):
        # The policies are the subject of test_rights.
        if document is None or document["kind"] not in paths:
            continue
        path = paths[document["kind"]].format(document["metadata"].get("namespace", ""))
        if cluster.admin.find(f"{path}/{document['metadata']['name']}") is None:
            cluster.admin.create(path, document)


@pytest.fixture
def rights(cluster: Cluster) -> Iterator[Cluster]:
    install(cluster, "nodeagent.yaml")
    install(cluster, "fleet-order.yaml")
    yield cluster
    # Other tests are about the rights without it.
    for kind in ("clusterrolebindings", "clusterroles"):
        cluster.admin.delete(f"{RBAC}/{kind}/nodeagent-fleet-order")


class Member:
    """An agent: its Node, its connection with the rights of an agent, its slots and its reports."""

    def __init__(self, cluster: Cluster, client: KubeClient, name: str, slots: SlotPool, order: RolloutOrder) -> None:
        self.name = name
        self._cluster = cluster
        self._client = client
        self._slots = slots
        self._order = order
        self.shake = Handshake(client, name, Fetched(), changed=lambda _: None, every=3600)
        self.refusals: list[str] = []

    def slots(self) -> KubeSlots:
        """Of a process that has just started."""
        turn = KubeTurn(self._client, self.name, self._order, SystemClock())
        return KubeSlots(self._client, HostIdentity(self.name, self.name), self._slots, SystemClock(), turn=turn)

    async def report(self, phase: Phase, current: str, reason: str = "") -> None:
        self.shake.report(Status(phase, reason, current=current))
        want = {Phase.IDLE: "Done", Phase.DEGRADED: "Degraded"}.get(phase, "Working")
        async with asyncio.timeout(60):
            while (notes := self.notes()).get(STATE) != want or (want == "Done" and notes.get(CURRENT) != current):
                await asyncio.sleep(0.05)

    def notes(self) -> dict[str, str]:
        found: dict[str, str] = self._cluster.admin.get(f"/api/v1/nodes/{self.name}")["metadata"]["annotations"]
        return found

    async def begin(self) -> None:
        await self.report(Phase.LEASING, OLD)
        slots = self.slots()
        while True:
            try:
                await slots.acquire("nodeagent", OP, "update")
            except (Refused, Retryable) as refused:
                self.refusals.append(refused.reason)
                await asyncio.sleep(0.1)
            else:
                return

    async def update(self) -> None:
        await self.begin()
        await self.report(Phase.IDLE, NEW)
        await self.slots().release(OP)


class Fleet:
    def __init__(self, cluster: Cluster, stack: AsyncExitStack) -> None:
        number = next(_numbers)
        self.first, self.second = f"control-{number}", f"work-{number}"
        self._cluster = cluster
        self._stack = stack
        self._number = number

    async def member(self, pool: str, word: str, order: RolloutOrder, pause: float = 0.0) -> Member:
        name = f"order-{self._number}-{word}"
        self._cluster.node(name, labels={"nodeagent.org/pool": pool})
        Controller(self._cluster, name).annotate(currentConfig=OLD, desiredConfig=NEW)
        config = self._cluster.kubeconfig(f"nodeagent:{name}", ["nodeagent"])
        client = await self._stack.enter_async_context(client_at(self._cluster, config))
        member = Member(self._cluster, client, name, SlotPool(pool, SlotKind.DISRUPT, 2, pause), order)
        running = asyncio.create_task(member.shake.run())

        async def stop() -> None:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

        self._stack.push_async_callback(stop)
        return member


@pytest.fixture
async def fleet(rights: Cluster) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        yield Fleet(rights, stack)


def taken_at(cluster: Cluster, node: str) -> list[float]:
    """When the node had a slot with which it may begin: it has checked its turn."""
    found = []
    for _, event in written(cluster):
        slot = event.get("responseObject") or {}
        marked = "nodeagent.org/turn-unchecked" in ((slot.get("metadata") or {}).get("annotations") or {})
        holder = (slot.get("spec") or {}).get("holderIdentity") or ""
        if holder.startswith(f"{node}/") and not marked:
            found.append(seconds(event["stageTimestamp"]))
    return found


def reported(cluster: Cluster, node: str, state: str, current: str) -> list[float]:
    """When the node reported this state, as the API server received it."""
    found = []
    for event in cluster.audit():
        if (event.get("objectRef") or {}).get("name") != node or event["verb"] != "patch":
            continue
        notes: dict[str, Any] = ((event.get("responseObject") or {}).get("metadata") or {}).get("annotations") or {}
        if (notes.get(STATE), notes.get(CURRENT)) == (state, current):
            found.append(seconds(event["requestReceivedTimestamp"]))
    return found


async def test_no_worker_begins_before_the_last_control_plane_is_done(rights: Cluster, fleet: Fleet) -> None:
    order = RolloutOrder((fleet.first, fleet.second))
    controls = [await fleet.member(fleet.first, f"c{number}", order) for number in range(3)]
    workers = [await fleet.member(fleet.second, f"w{number}", order) for number in range(3)]
    async with asyncio.timeout(240):
        early = [asyncio.create_task(worker.update()) for worker in workers]
        while not all("PoolOrder" in worker.refusals for worker in workers):
            await asyncio.sleep(0.1)
        await asyncio.gather(*(control.update() for control in controls), *early)
    last = max(min(reported(rights, control.name, "Done", NEW)) for control in controls)
    first = min(min(taken_at(rights, worker.name)) for worker in workers)
    assert first >= last
    assert all("PoolOrder" not in control.refusals for control in controls)


async def test_a_pool_halts_and_continues_when_it_is_repaired(rights: Cluster, fleet: Fleet) -> None:
    order = RolloutOrder(halt_degraded=1)
    bad, repaired, waiting = [await fleet.member(fleet.second, word, order, PAUSE) for word in ("bad", "ok", "next")]
    await repaired.report(Phase.IDLE, NEW)
    await waiting.report(Phase.IDLE, OLD)
    await bad.begin()
    await bad.report(Phase.DEGRADED, OLD, "ConfigRejected")
    await bad.slots().release(OP)
    task = asyncio.create_task(waiting.begin())
    async with asyncio.timeout(120):
        while "PoolHalted" not in waiting.refusals:
            await asyncio.sleep(0.1)
    # Other processes, as after restarts: nothing but the cluster knows.
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            await waiting.slots().acquire("nodeagent", OP, "update")
        assert caught.value.reason == "PoolHalted"
        assert f"halts at 1 degraded nodes, and has 1: {bad.name} (ConfigRejected)" in caught.value.message
    # A Node that lost its state is not known to be well.
    rights.admin.patch(f"/api/v1/nodes/{bad.name}", {"metadata": {"annotations": {STATE: "?"}}})
    message = ""
    async with asyncio.timeout(60):
        while "reports no state" not in message:
            await asyncio.sleep(0.3)
            with pytest.raises(Refused) as caught:
                await waiting.slots().acquire("nodeagent", OP, "update")
            message = caught.value.message
    assert taken_at(rights, waiting.name) == []
    # The degraded node may apply the repair, and is not counted while it works.
    async with asyncio.timeout(120):
        await bad.update()
        await task
    degraded = max(reported(rights, bad.name, "Degraded", OLD))
    again = min(at for at in reported(rights, bad.name, "Working", OLD) if at > degraded)
    assert min(taken_at(rights, waiting.name)) >= again
    await waiting.slots().release(OP)


async def test_without_the_role_no_slot_is_taken(cluster: Cluster, rights: Cluster, fleet: Fleet) -> None:
    member = await fleet.member(fleet.first, "c", RolloutOrder((fleet.first,)))
    await member.report(Phase.LEASING, OLD)
    cluster.admin.delete(f"{RBAC}/clusterrolebindings/nodeagent-fleet-order")
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    await member.slots().acquire("nodeagent", OP, "update")
                except Forbidden as error:
                    assert error.reason == "KubeForbidden"
                    assert "nodes" in error.message
                    break
                # The API server learns of the deletion a moment later.
                await member.slots().release(OP)
                await asyncio.sleep(0.2)
        assert [slot for slot in await member.slots().read() if slot.held] == []
    finally:
        install(cluster, "fleet-order.yaml")
    async with asyncio.timeout(30):
        while True:
            with suppress(Forbidden):
                await member.slots().acquire("nodeagent", OP, "update")
                break
            await asyncio.sleep(0.2)
    await member.slots().release(OP)


def test_each_right_of_the_role_is_read() -> None:
    role = next(yaml.safe_load_all((MANIFESTS / "fleet-order.yaml").read_text()))
    rules = [(rule["resources"], rule["verbs"]) for rule in role["rules"]]
    assert rules == [(["nodes"], ["list"]), (["machineconfigpools"], ["list"])]
