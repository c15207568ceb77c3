# SPDX-License-Identifier: Apache-2.0
"""What a client with the stolen credentials of one node's agent can do to others: the requests of an attacker.

Each request goes to a real API server with the shipped rights and policies, with a token that is bound to the Node and
with a client certificate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.test_rights import by_certificate, by_token, in_force, installed
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.features.slots.decide.pool import SlotKind, SlotPool
from nodeagent.features.slots.leases import KubeSlots
from nodeagent.host.clock import SystemClock
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Forbidden

__all__ = ["installed"]

SLOTS: Final = "/apis/coordination.k8s.io/v1/namespaces/nodeagent/leases"
GONE: Final = {"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "11111111-2222-3333-4444-555555555555"}
LONG_AGO: Final = "2001-01-01T00:00:00.000000Z"
CREDENTIALS: Final = pytest.mark.parametrize("connect", [by_token, by_certificate])


def slots_of(client: KubeClient, node: str, pool: str, *, pause: float = 0.0, count: int = 4) -> KubeSlots:
    place = SlotPool(pool, SlotKind.DISRUPT, count, pause)
    return KubeSlots(client, HostIdentity(node, "host"), place, SystemClock())


async def refused(request: Awaitable[Any], words: str) -> None:
    with pytest.raises(Forbidden, match=words):
        await request


@pytest.mark.finding(
    "attack: stolen credentials of a node", "An agent changes no owner, finalizer and machine of its Node."
)
@CREDENTIALS
@pytest.mark.parametrize("part", ["", "/status"])
async def test_the_node_itself(installed: Cluster, node: str, connect: Any, part: str) -> None:
    await in_force(installed)
    path = f"/api/v1/nodes/{node}{part}"
    changes: list[dict[str, Any]] = [
        {"metadata": {"ownerReferences": [GONE]}},
        {"metadata": {"ownerReferences": [{**GONE, "kind": "Node", "name": node}]}},
        {"metadata": {"finalizers": ["example.com/keep"]}},
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
    ]
    # The subresource takes no spec.
    changes += [{"spec": {"providerID": "aws:///other"}}, {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}]
    async with connect(installed, node) as client:
        for change in changes[: 4 if part else None]:
            await refused(client.patch(path, change), "an agent may not change")
        # What an agent writes stays possible, also beside owners and finalizers of others.
        kept = {"ownerReferences": [{**GONE, "controller": False}], "finalizers": ["example.com/keep"]}
        installed.admin.patch(f"/api/v1/nodes/{node}", {"metadata": kept})
        await client.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        await refused(client.patch(path, {"metadata": {"finalizers": None}}), "an agent may not change")
    installed.admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"ownerReferences": None, "finalizers": None}})


@pytest.mark.finding("attack: stolen credentials of a node", "No agent ends the pause of a pool.")
@CREDENTIALS
async def test_a_paused_slot(installed: Cluster, node: str, make_node: Any, connect: Any) -> None:
    await in_force(installed)
    other, pool = make_node(), f"{node}-paused"
    async with by_certificate(installed, other) as honest:
        theirs = slots_of(honest, other, pool, pause=600, count=1)
        await theirs.acquire("nodeagent", "op", "update")
        await theirs.release("op")
    path = f"{SLOTS}/slot-disrupt-{pool}-0"
    before = installed.admin.get(path)
    note = before["metadata"]["annotations"]["nodeagent.org/released"]
    uid = installed.admin.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    own: dict[str, Any] = {"spec": {"holderIdentity": f"{node}/evil"}, "metadata": {"ownerReferences": [owner]}}
    async with connect(installed, node) as client:
        await refused(client.delete(path, uid=before["metadata"]["uid"]), "this agent is that of node")
        for value in (None, LONG_AGO, "", "1"):
            meta = {**own["metadata"], "annotations": {"nodeagent.org/released": value}}
            await refused(client.patch(path, {**own, "metadata": meta}), "the last release of a slot")
        # It may take the slot, which disrupts its own node only, and then has to give it back with the pause.
        await client.patch(path, own)
        await refused(client.delete(path, uid=before["metadata"]["uid"]), "this agent is that of node")
        for value in (None, LONG_AGO):
            free = {"ownerReferences": None, "annotations": {"nodeagent.org/released": value}}
            await refused(client.patch(path, {"metadata": free, "spec": {"holderIdentity": None}}), "the last release")
        # The garbage collector would delete it for the attacker.
        for strange in (GONE, {**owner, "name": other}, {**owner, "kind": "Pod"}):
            await refused(
                client.patch(path, {"metadata": {"ownerReferences": [strange]}}), "the last release of a slot"
            )
        if connect is by_token:
            fake = {**owner, "uid": GONE["uid"]}
            await refused(client.patch(path, {"metadata": {"ownerReferences": [fake]}}), "the last release of a slot")
        await slots_of(client, node, pool, pause=600, count=1).release("evil")
    after = installed.admin.get(path)["metadata"]["annotations"]["nodeagent.org/released"]
    assert after >= note


@pytest.mark.finding(
    "attack: stolen credentials of a node", "No agent hides a slot from those who count the slots of a pool."
)
@CREDENTIALS
async def test_hidden_slots(installed: Cluster, node: str, make_node: Any, connect: Any) -> None:
    await in_force(installed)
    pool = f"{node}-hidden"
    async with connect(installed, node) as client:
        slots = slots_of(client, node, pool)
        name = await slots.acquire("nodeagent", "op", "update")
        made = installed.admin.get(f"{SLOTS}/{name}")
        changes: list[dict[str, Any]] = [
            {"labels": None},
            {"labels": {"nodeagent.org/pool": "other"}},
            {"labels": {"nodeagent.org/slot": "stage"}},
            {"labels": {"more": "labels"}},
            {"ownerReferences": None},
            {"ownerReferences": [GONE]},
            {"finalizers": ["example.com/keep"]},
        ]
        for change in changes:
            await refused(client.patch(f"{SLOTS}/{name}", {"metadata": change}), "labels, owners, finalizers")
        # In a pool of which it has no slot: a second one is refused for another reason.
        about = {key: made["metadata"][key] for key in ("labels", "ownerReferences", "annotations")}
        about["labels"] = {**about["labels"], "nodeagent.org/pool": f"{pool}-2"}
        free = f"slot-disrupt-{pool}-2-0"
        fresh: list[dict[str, Any]] = [
            {**about, "name": free, "labels": {}},
            {**about, "name": free, "labels": {**about["labels"], "nodeagent.org/pool": node}},
            {**about, "name": free, "ownerReferences": None},
            {**about, "name": free, "finalizers": ["example.com/keep"]},
            {**about, "name": f"{free}x"},
        ]
        for meta in fresh:
            body = {"metadata": meta, "spec": {"holderIdentity": f"{node}/evil"}}
            await refused(client.create(SLOTS, body), "labels, owners, finalizers")
        await slots.release("op")
    assert installed.admin.find(f"{SLOTS}/{name}") is None


@pytest.mark.finding(
    "attack: stolen credentials of a node", "An agent holds one slot of a pool, and leaves the others to other nodes."
)
@CREDENTIALS
async def test_all_slots_of_a_pool(installed: Cluster, node: str, make_node: Any, connect: Any) -> None:
    await in_force(installed)
    other, pool = make_node(), f"{node}-all"
    async with connect(installed, node) as client:
        slots = slots_of(client, node, pool)
        name = await slots.acquire("nodeagent", "op", "update")
        made = installed.admin.get(f"{SLOTS}/{name}")
        about = {key: made["metadata"][key] for key in ("labels", "ownerReferences", "annotations")}
        names = [f"slot-disrupt-{pool}-{index}" for index in range(4) if not name.endswith(f"-{index}")]

        async def take(free: str) -> None:
            body = {"metadata": {**about, "name": free}, "spec": {"holderIdentity": f"{node}/evil"}}
            await client.create(SLOTS, body)

        await until_refused(take, names[0], installed)
        for free in names:
            await refused(take(free), "one slot of a pool")
        async with by_certificate(installed, other) as honest:
            await slots_of(honest, other, pool).acquire("nodeagent", "op", "update")
        # One of another kind, and of another pool, are no second one.
        staging = KubeSlots(client, HostIdentity(node, "host"), SlotPool(pool, SlotKind.STAGE, 1), SystemClock())
        await staging.acquire("nodeagent", "op", "update")
        await slots.acquire("nodeagent", "op2", "update")


async def until_refused(take: Callable[[str], Awaitable[None]], name: str, cluster: Cluster) -> None:
    """The API server sees the first slot by a watch of its own, and compiles the policy, a moment later."""
    async with asyncio.timeout(30):
        while True:
            try:
                await take(name)
            except Forbidden:
                return
            cluster.admin.delete(f"{SLOTS}/{name}")
            await asyncio.sleep(0.2)
