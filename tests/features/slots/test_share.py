# SPDX-License-Identifier: Apache-2.0
"""A percentage of a pool: nodes that count their pool differently, and whose requests arrive in any order."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import OutOfTurn, Retryable
from nodeagent.features.slots.decide.limits import PoolSize, limit_of, read_size
from nodeagent.features.slots.decide.pool import SIZE, SlotKind, SlotPool
from nodeagent.features.slots.leases import KubeSlots
from nodeagent.features.slots.turn import KubeShare
from nodeagent.kube.errors import Forbidden
from tests.features.slots.ordered import Killed, Order, OrderedClient
from tests.kube.memory_api import BEGAN, LEASES, NODES, MemoryApi
from tests.world import FakeClock, World

LABEL: Final = "nodeagent.org/pool"
NOTE: Final = f"nodeagent.org/{SIZE}"
UNCHECKED: Final = "nodeagent.org/turn-unchecked"


@pytest.mark.parametrize(
    ("percent", "nodes", "limit"),
    [(10, 0, 1), (10, 9, 1), (10, 19, 1), (10, 20, 2), (33, 100, 33), (50, 3, 1), (1, 5000, 50), (100, 7, 7)],
)
def test_it_is_rounded_down_to_at_least_one(percent: int, nodes: int, limit: int) -> None:
    assert limit_of(percent, nodes) == limit


@given(
    st.floats(0, 4e9), st.none() | st.from_regex(r"[a-z0-9][-a-z0-9.]{0,20}", fullmatch=True), st.integers(0, 10**6 - 1)
)
def test_a_size_is_read_as_it_was_written(at: float, pool: str | None, nodes: int) -> None:
    size = read_size(PoolSize(at, pool, nodes).text)
    assert size is not None
    assert (size.pool, size.nodes) == (pool, nodes)
    assert abs(size.at - at) < 1e-3


@given(st.text() | st.from_regex(r"2026-01-01T00:00:00(Z|\.0Z)? (p|-)? ?(-?[0-9]*|\W|٣)"))
def test_a_size_of_another_form_is_none(text: str) -> None:
    size = read_size(text)
    assert size is None or 0 <= size.nodes < 10**6


class Fleet:
    """``nodes`` of one pool, and two of another."""

    def __init__(self, percent: int, nodes: int, order: Order | None = None, pause: float = 0.0) -> None:
        self.api = MemoryApi()
        self.percent, self.order = percent, order
        self.pool = SlotPool("p", SlotKind.DISRUPT, 1, pause)
        self.disrupted: set[int] = set()
        self.most = 0
        for number in range(nodes):
            self.node(f"n{number}")
        self.node("x0", "others")
        self.node("x1", "others")
        self.sees_sizes()

    def node(self, name: str, pool: str = "mine") -> None:
        self.api.add(NODES, name, metadata={"labels": {LABEL: pool}})

    def sees_sizes(self) -> None:
        """Note the largest limit that any node can have read."""
        nodes = [found for path, found in self.api.objects.items() if path.startswith(NODES)]
        mine = sum(found["metadata"]["labels"][LABEL] == "mine" for found in nodes)
        self.most = max(self.most, max(1, mine * self.percent // 100))

    def slots(self, name: str, seconds: Any = None) -> KubeSlots:
        clock = FakeClock(World())
        client = OrderedClient(self.api, clock, seconds or self.seconds)
        client.order = self.order
        share = KubeShare(client, name, self.percent, clock)
        return KubeSlots(client, HostIdentity(name, name), self.pool, clock, share=share)

    def seconds(self) -> float:
        return float(self.api.asked.total())

    def leases(self) -> list[dict[str, Any]]:
        return [found for path, found in self.api.objects.items() if path.startswith(LEASES)]

    def held(self) -> dict[str, dict[str, Any]]:
        holders = ((lease["spec"].get("holderIdentity"), lease["metadata"]["annotations"]) for lease in self.leases())
        return {holder: notes for holder, notes in holders if holder}

    def written(self, nodes: int, index: int = 0) -> None:
        """Leave a free slot with a size that was true once."""
        name = self.pool.lease(index)
        about = {"labels": dict(self.pool.labels), "annotations": {NOTE: PoolSize(BEGAN - 9e6, "mine", nodes).text}}
        self.api.add(LEASES, name, metadata=about, spec={})

    def check(self) -> None:
        """What must hold at each moment."""
        assert len(self.disrupted) <= self.most
        assert sum(UNCHECKED not in notes for notes in self.held().values()) <= self.most

    async def update(self, number: int) -> None:
        """Update a node, whose agent begins again whenever it is killed."""
        assert self.order is not None
        name = f"n{number}"
        slots = self.slots(name)
        while number not in self.disrupted:
            try:
                await slots.acquire("nodeagent", "op", "update")
                self.disrupted.add(number)
            except Killed:
                slots = self.slots(name)
            except (OutOfTurn, Retryable):
                await self.order.arrive()
        await self.order.arrive()
        self.disrupted.remove(number)
        while True:
            try:
                return await slots.release("op")
            except Killed:
                slots = self.slots(name)


@pytest.mark.long
@given(
    st.sampled_from([1, 34, 50, 100]),
    st.integers(1, 6),
    st.sampled_from([None, 1, 6, 400]),
    st.sampled_from([0.0, 0.03]),
    st.sampled_from([0.0, 0.8, 0.95]),
    st.integers(-3, 3),
    st.integers(0, 1 << 32),
)
@settings(max_examples=150)
def test_never_more_nodes_than_the_percentage_of_any_size_that_was_true(
    percent: int, nodes: int, stale: int | None, kills: float, bursts: float, change: int, seed: int
) -> None:
    """At each request and each answer, in any order, with agents that are killed, sizes that were true long ago, and
    nodes that come and go in the middle."""

    async def run() -> None:
        order = Order(seed, kills, bursts)
        fleet = Fleet(percent, nodes, order)
        for number in range(max(0, -change)):
            fleet.node(f"leaves{number}")
        fleet.sees_sizes()
        if stale is not None:
            fleet.written(stale)
        after = random.Random(seed).randrange(200)

        def check() -> None:
            if fleet.api.asked.total() == after:
                for number in range(abs(change)):
                    if change < 0:
                        fleet.api.objects.pop(f"{NODES}/leaves{number}", None)
                    else:
                        fleet.node(f"comes{number}")
                fleet.sees_sizes()
            fleet.check()

        tasks = [asyncio.ensure_future(fleet.update(number)) for number in range(nodes)]
        await order.run(tasks, check)
        for task in tasks:
            await task
        assert fleet.held() == {}

    random.seed(seed)
    asyncio.run(run())


async def taken(slots: KubeSlots) -> str:
    """Return the slot, or the reason without one."""
    try:
        await slots.look()
        return await slots.acquire("nodeagent", "op", "update")
    except OutOfTurn as error:
        return str(error.reason)


async def test_the_first_node_counts_and_the_others_follow() -> None:
    fleet = Fleet(50, 6)
    members = [fleet.slots(f"n{number}") for number in range(6)]
    results = [await taken(member) for member in members]
    assert [result == "SlotHeld" for result in results] == [False] * 3 + [True] * 3
    assert fleet.api.asked["LIST nodes"] == 3, "those that wait read no other node"
    with pytest.raises(OutOfTurn) as caught:
        await members[5].look()
    assert caught.value.brief == "3 of 3 slots (disrupt, 50% of 6 nodes) of pool p are held"


async def test_a_node_that_waits_sends_one_request() -> None:
    fleet = Fleet(10, 3)
    await taken(fleet.slots("n0"))
    waiting = fleet.slots("n1")
    assert await taken(waiting) == "SlotHeld"
    fleet.api.asked.clear()
    for _ in range(5):
        assert await taken(waiting) == "SlotHeld"
    assert fleet.api.asked == {"LIST leases": 5}


async def test_a_pool_that_became_smaller_takes_no_more_than_its_share() -> None:
    """An old size lets many try; each of them counts before it begins."""
    fleet = Fleet(50, 4)
    fleet.written(400)
    results = [await taken(fleet.slots(f"n{number}")) for number in range(4)]
    assert [result == "SlotHeld" for result in results] == [False, False, True, True]
    assert {read_size(notes[NOTE]).nodes for notes in fleet.held().values()} == {4}  # type: ignore[union-attr]


async def test_a_pool_that_became_smaller_during_updates_begins_no_other_until_enough_have_ended() -> None:
    fleet = Fleet(50, 6)
    members = [fleet.slots(f"n{number}") for number in range(6)]
    for member in members[:3]:
        assert await taken(member) != "SlotHeld"
    for name in ("n4", "n5"):
        del fleet.api.objects[f"{NODES}/{name}"]
    await members[0].release("op")
    assert await taken(members[3]) == "SlotHeld", "2 of 4 nodes are under way"
    assert len(fleet.held()) == 2
    await members[1].release("op")
    assert await taken(members[3]) != "SlotHeld"


async def test_the_size_outlasts_the_holders() -> None:
    fleet = Fleet(50, 4)
    first = fleet.slots("n0")
    await taken(first)
    await first.release("op")
    assert fleet.held() == {}
    assert [NOTE in lease["metadata"]["annotations"] for lease in fleet.leases()] == [True]
    second, third = fleet.slots("n1"), fleet.slots("n2")
    names = {await taken(second), await taken(third)}
    assert names == {fleet.pool.lease(0), fleet.pool.lease(1)}
    assert await taken(fleet.slots("n3")) == "SlotHeld"


async def test_a_pool_counts_its_own_nodes() -> None:
    """Two pools of the cluster share the slots: each counts all holders, against its own size."""
    fleet = Fleet(50, 6)
    assert await taken(fleet.slots("n0")) != "SlotHeld"
    assert await taken(fleet.slots("x0")) == "SlotHeld", "1 of 2 nodes"
    assert await taken(fleet.slots("n1")) != "SlotHeld"


@pytest.mark.parametrize("pause", [0.0, 60.0])
async def test_a_count_without_a_right_leaves_no_slot(pause: float) -> None:
    fleet = Fleet(50, 4, pause=pause)
    member = fleet.slots("n0")

    async def refused() -> PoolSize:
        raise Forbidden("nodes is forbidden")

    member._share.read = refused  # type: ignore[union-attr, method-assign]
    with pytest.raises(Forbidden):
        await member.acquire("nodeagent", "op", "update")
    assert fleet.held() == {}
    assert await taken(fleet.slots("n1")) == fleet.pool.lease(0), "nothing was disrupted, so no pause follows"


async def test_a_size_from_the_future_does_not_count() -> None:
    fleet = Fleet(50, 4)
    fleet.written(400)
    (lease,) = fleet.leases()
    lease["metadata"]["annotations"][NOTE] = PoolSize(BEGAN + 9e6, "mine", 400).text
    lease["spec"]["holderIdentity"] = "n1/op"
    with pytest.raises(OutOfTurn, match="not counted yet") as caught:
        await fleet.slots("n0").look()
    assert caught.value.brief.startswith("1 of 1 slots (disrupt, 50% of its nodes")


async def test_a_pause_follows_an_update_and_no_count() -> None:
    fleet = Fleet(50, 4, pause=600.0)
    member = fleet.slots("n0")
    await taken(member)
    await member.release("op")
    assert await taken(fleet.slots("n1")) == "SlotPaused"
