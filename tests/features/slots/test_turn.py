# SPDX-License-Identifier: Apache-2.0
"""Many nodes that wait for the turn of their pool, with one API server that counts their requests."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections import Counter
from typing import Any, cast

import pytest

from nodeagent.core.coordination.kube_objects import Node
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import OutOfTurn, Retryable
from nodeagent.features.slots.decide.order import RolloutOrder, turn_gate
from nodeagent.features.slots.decide.pool import SlotKind, SlotPool
from nodeagent.features.slots.decide.rollout import ClusterObjects
from nodeagent.features.slots.decide.turn import CHECK, COUNTS, SHOWN
from nodeagent.features.slots.leases import KubeSlots
from nodeagent.features.slots.objects import NodeReport
from nodeagent.features.slots.turn import KubeTurn
from nodeagent.kube.client import METADATA
from nodeagent.kube.decode import decoded_items
from nodeagent.kube.errors import Forbidden
from tests.kube.memory_api import LEASES, NODES, MemoryApi, MemoryClient
from tests.world import FakeClock, World

pytestmark = pytest.mark.looptime

MCO = "machineconfiguration.openshift.io/"
SLOTS = 4


def now() -> float:
    return asyncio.get_running_loop().time()


class Fleet:
    """``first`` nodes of a pool that is updated first, and nodes of a pool that waits for them."""

    def __init__(self, count: int, pause: float = 0.0, order: RolloutOrder | None = None) -> None:
        self.api = MemoryApi()
        self.order = order or RolloutOrder(("first", "second"))
        self.pool = SlotPool("p", SlotKind.DISRUPT, SLOTS, pause)
        self.refused: Counter[str] = Counter()
        for number in range(count):
            self.node(f"n{number}", "second", "Working")
        self.node("m0", "first", "Working")

    def node(self, name: str, pool: str, state: str, current: str = "old") -> None:
        notes = {MCO + "currentConfig": current, MCO + "desiredConfig": "new", MCO + "state": state}
        self.api.add(NODES, name, metadata={"labels": {"nodeagent.org/pool": pool}, "annotations": notes})

    def slots(self, name: str) -> KubeSlots:
        clock = FakeClock(World())
        client = MemoryClient(self.api, clock, now)
        turn = KubeTurn(client, name, self.order, clock)
        return KubeSlots(client, HostIdentity(name, name), self.pool, clock, turn=turn)

    async def attempt(self, slots: KubeSlots, operation: str = "op") -> bool:
        try:
            await slots.look()
            await slots.acquire("nodeagent", operation, "update")
        except (OutOfTurn, Retryable) as error:
            self.refused[error.reason] += 1
            return False
        return True

    def held(self) -> list[str]:
        slots = [found for path, found in self.api.objects.items() if path.startswith(LEASES)]
        return [slot["spec"]["holderIdentity"] for slot in slots if slot["spec"].get("holderIdentity")]


@pytest.mark.finding(
    "cluster: nodes that wait in the order of pools",
    "One node in a minute reads the metadata of all Nodes for all that wait; an attempt of the others is one request.",
)
async def test_one_node_reads_for_all() -> None:
    fleet = Fleet(60)
    members = [fleet.slots(f"n{number}") for number in range(60)]
    for member in members:
        assert not await fleet.attempt(member)
    assert fleet.api.asked["LIST nodes"] == 1
    fleet.api.asked.clear()
    minutes = 10
    for _ in range(minutes):
        for member in members:
            await asyncio.sleep(1.0)
            assert not await fleet.attempt(member)
    attempts = minutes * len(members)
    checks = fleet.api.asked["LIST nodes"]
    assert checks <= minutes * 60 / COUNTS + 1
    assert set(fleet.refused) == {"PoolOrder"}
    # A check reads and writes its slot, the Node and the pools; an attempt of the others reads the slots, and in ten
    # minutes once its own Node and the pools.
    assert fleet.api.asked.total() <= attempts + 10 * checks + 3 * len(members)
    assert all(
        "resourceVersionMatch=NotOlderThan" in query for query in fleet.api.queries if "resourceVersion=" in query
    )
    assert fleet.held() == []


async def test_nodes_that_begin_at_the_same_moment_read_no_more_often_than_there_are_slots() -> None:
    fleet = Fleet(60)
    await asyncio.gather(*(fleet.attempt(fleet.slots(f"n{number}")) for number in range(60)))
    assert fleet.api.asked["LIST nodes"] <= SLOTS


async def test_the_turn_comes() -> None:
    fleet = Fleet(6)
    members = [fleet.slots(f"n{number}") for number in range(6)]
    assert not await fleet.attempt(members[0])
    fleet.node("m0", "first", "Done", "new")
    assert not await fleet.attempt(members[1]), "the verdict of another node still counts"
    await asyncio.sleep(COUNTS + 2)
    began = [await fleet.attempt(member) for member in members]
    assert began == [True] * SLOTS + [False] * 2
    assert len(fleet.held()) == SLOTS
    marks = [found["metadata"]["annotations"] for path, found in fleet.api.objects.items() if path.startswith(LEASES)]
    assert not any("nodeagent.org/turn" in key for notes in marks for key in notes)
    await members[0].check("op")
    await members[0].release("op")
    assert await fleet.attempt(members[4])


async def test_a_verdict_is_that_of_one_pool() -> None:
    """Two pools of the cluster may share their slots."""
    fleet = Fleet(2)
    assert not await fleet.attempt(fleet.slots("n0"))
    assert await fleet.attempt(fleet.slots("m0"))


async def test_a_node_that_dies_in_its_check_keeps_its_slot_and_no_other_node() -> None:
    fleet = Fleet(3)
    dying = fleet.slots("n0")
    assert not await fleet.attempt(dying)
    await asyncio.sleep(COUNTS + 2)
    fleet.node("m0", "first", "Done", "new")

    async def dies() -> None:
        raise asyncio.CancelledError

    dying._turn.check = dies  # type: ignore[union-attr, method-assign, assignment]
    with pytest.raises(asyncio.CancelledError):
        await fleet.attempt(dying)
    assert fleet.held() == ["n0/op"]
    assert not await fleet.attempt(fleet.slots("n1")), "it may be about to answer"
    await asyncio.sleep(min(CHECK, SHOWN) + 2)
    assert await fleet.attempt(fleet.slots("n1"))
    assert await fleet.attempt(fleet.slots("n0")), "after its restart it checks its turn"


@pytest.mark.parametrize("pause", [0.0, 30.0])
async def test_a_check_without_a_right_leaves_no_slot(pause: float) -> None:
    fleet = Fleet(2, pause)
    fleet.node("m0", "first", "Done", "new")
    member = fleet.slots("n0")

    async def refused() -> None:
        raise Forbidden("nodes is forbidden")

    member._turn.check = refused  # type: ignore[union-attr, method-assign, assignment]
    with pytest.raises(Forbidden):
        await member.acquire("nodeagent", "op", "update")
    assert fleet.held() == []
    assert await fleet.attempt(fleet.slots("n1")), "nothing was disrupted, so no pause follows"


async def test_a_check_is_no_release_that_pauses_the_pool() -> None:
    fleet = Fleet(2, pause=600.0)
    assert not await fleet.attempt(fleet.slots("n0"))
    fleet.node("m0", "first", "Done", "new")
    await asyncio.sleep(COUNTS + 2)
    member = fleet.slots("n1")
    assert await fleet.attempt(member)
    await member.release("op")
    assert not await fleet.attempt(fleet.slots("n0"))
    assert fleet.refused["SlotPaused"] == 1


async def test_only_metadata_are_requested() -> None:
    fleet = Fleet(1)
    client = fleet.slots("n0")._client
    accepted: list[str] = []
    once = client._once

    async def noted(method: str, url: str, body: Any, kind: str, accept: str, *rest: Any) -> Any:
        if url.startswith(NODES + "?"):
            accepted.append(accept)
        return await once(method, url, body, kind, accept, *rest)

    client._once = noted  # type: ignore[method-assign]
    await KubeTurn(client, "n0", fleet.order, FakeClock(World())).check()
    assert accepted == [METADATA]


@pytest.mark.finding(
    "cluster: nodes that wait in the order of pools",
    "The check of a turn keeps only what it reads of each Node in memory.",
)
def test_the_memory_of_a_check_is_bounded() -> None:
    """5,000 Nodes, of which the API server sends nine MiB of metadata."""

    def item(number: int) -> dict[str, Any]:
        labels = {f"topology.kubernetes.io/label-{each}": f"value-{each}-of-{number}" for each in range(12)}
        others = {f"csi.volume.kubernetes.io/note-{each}": "x" * 60 for each in range(8)}
        notes = {MCO + "currentConfig": "old", MCO + "desiredConfig": "new", MCO + "state": "Done"}
        meta = {
            "name": f"n{number}",
            "labels": {**labels, "nodeagent.org/pool": "p"},
            "annotations": {**others, **notes},
        }
        return {"metadata": {**meta, "uid": f"u{number}", "resourceVersion": "1"}}

    text = json.dumps({"metadata": {}, "items": [item(number) for number in range(5_000)]}).encode()
    tracemalloc.start()
    try:
        members = decoded_items(NodeReport, text, "GET /nodes")
        gate = turn_gate(ClusterObjects(cast("list[Node]", members)), "n1", RolloutOrder(("p", "q"), 1))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(members), gate is None) == (5_000, True)
    assert peak < 25 * 2**20
