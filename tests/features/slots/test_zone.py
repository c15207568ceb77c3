# SPDX-License-Identifier: Apache-2.0
"""One zone of a pool at a time: nodes whose requests and answers arrive in any order."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import OutOfTurn, Retryable
from nodeagent.features.slots.decide.pool import Slot, SlotKind, SlotPool
from nodeagent.features.slots.leases import WRITES, KubeSlots
from nodeagent.features.slots.own_node import LABELS_EVERY, KubeZone
from nodeagent.kube.errors import Forbidden
from tests.features.slots.ordered import Killed, Order, OrderedClient
from tests.kube.memory_api import LEASES, NODES, MemoryApi
from tests.world import FakeClock, World

LABEL: Final = "topology.kubernetes.io/zone"
UNCHECKED: Final = "nodeagent.org/turn-unchecked"


class Fleet:
    def __init__(self, count: int, zones: Sequence[str], pause: float = 0.0, order: Order | None = None) -> None:
        self.api = MemoryApi()
        self.pool = SlotPool("p", SlotKind.DISRUPT, count, pause)
        self.order = order
        self.disrupted: set[int] = set()
        self.zones = list(zones)
        for number, zone in enumerate(zones):
            self.node(number, zone)

    def node(self, number: int, zone: str) -> None:
        self.api.add(NODES, f"n{number}", metadata={"labels": {LABEL: zone} if zone else {}})

    def slots(self, number: int, clock: FakeClock | None = None) -> KubeSlots:
        clock = clock or FakeClock(World())
        client = OrderedClient(self.api, clock, lambda: 0.0)
        client.order = self.order
        name = f"n{number}"
        zone = KubeZone(client, name, LABEL, clock)
        return KubeSlots(client, HostIdentity(name, name), self.pool, clock, zone=zone)

    def leases(self) -> list[dict[str, Any]]:
        return [found for path, found in self.api.objects.items() if path.startswith(LEASES)]

    def held(self) -> dict[str, dict[str, Any]]:
        leases = self.leases()
        holders = ((lease["spec"].get("holderIdentity"), lease["metadata"]["annotations"]) for lease in leases)
        return {holder: notes for holder, notes in holders if holder}

    def check(self) -> None:
        """What must hold at each moment."""
        assert len(self.held()) <= self.pool.count
        assert len({self.zones[number] for number in self.disrupted}) <= 1
        passed = [notes["nodeagent.org/zone"] for notes in self.held().values() if UNCHECKED not in notes]
        assert len(set(passed)) <= 1

    async def update(self, number: int) -> None:
        """Update a node, whose agent begins again whenever it is killed."""
        assert self.order is not None
        slots = self.slots(number)
        while number not in self.disrupted:
            try:
                await slots.acquire("nodeagent", "op", "update")
                self.disrupted.add(number)
            except Killed:
                slots = self.slots(number)
            except (OutOfTurn, Retryable):
                await self.order.arrive()
        await self.order.arrive()
        self.disrupted.remove(number)
        while True:
            try:
                return await slots.release("op")
            except Killed:
                slots = self.slots(number)


@pytest.mark.long
@given(
    st.integers(1, 4),
    st.lists(st.sampled_from(["a", "b", ""]), min_size=2, max_size=6),
    st.sampled_from([0.0, 0.03]),
    st.sampled_from([0.0, 0.8, 0.95]),
    st.integers(0, 1 << 32),
)
@settings(max_examples=150)
def test_never_two_zones_at_once_and_every_node_has_its_turn(
    count: int, zones: list[str], kills: float, bursts: float, seed: int
) -> None:
    """At each request and each answer, in any order, with agents that are killed at any of them."""

    async def run() -> None:
        order = Order(seed, kills, bursts)
        fleet = Fleet(count, zones, order=order)
        tasks = [asyncio.ensure_future(fleet.update(number)) for number in range(len(zones))]
        await order.run(tasks, fleet.check)
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


async def test_nodes_of_one_zone_use_all_slots_and_the_others_wait() -> None:
    fleet = Fleet(3, ["a", "a", "b", "b"])
    slots = [fleet.slots(number) for number in range(4)]
    first = [await taken(one) for one in slots]
    assert sorted(first[:2]) != first[2:] == ["ZoneHeld", "ZoneHeld"]
    await slots[0].release("op")
    assert await taken(slots[2]) == "ZoneHeld", "one of the zone is left"
    await slots[1].release("op")
    assert (await taken(slots[2]), await taken(slots[3])) != ("ZoneHeld", "ZoneHeld")
    assert await taken(slots[0]) == "ZoneHeld"


async def test_the_message_names_both_zones_and_who_is_waited_for() -> None:
    fleet = Fleet(2, ["a", "b", ""])
    await taken(fleet.slots(0))
    with pytest.raises(OutOfTurn) as caught:
        await fleet.slots(1).look()
    assert caught.value.message == "pool p disrupts nodes in zone a, and this one is in zone b: n0"
    with pytest.raises(OutOfTurn) as caught:
        await fleet.slots(2).look()
    assert caught.value.brief == "pool p disrupts nodes in zone a, and this one is in no zone"


async def test_a_node_that_waits_for_another_zone_sends_one_request() -> None:
    fleet = Fleet(2, ["a", "b"])
    await taken(fleet.slots(0))
    clock = FakeClock(World())
    waiting = fleet.slots(1, clock)
    assert await taken(waiting) == "ZoneHeld"
    fleet.api.asked.clear()
    for _ in range(5):
        assert await taken(waiting) == "ZoneHeld"
    assert fleet.api.asked == {"LIST leases": 5}


@pytest.mark.looptime
async def test_a_node_that_moves_to_another_zone_is_noticed() -> None:
    fleet = Fleet(2, ["a", "b"])
    await taken(fleet.slots(0))
    waiting = fleet.slots(1)
    assert await taken(waiting) == "ZoneHeld"
    fleet.node(1, "a")
    await asyncio.sleep(LABELS_EVERY)
    assert await taken(waiting) != "ZoneHeld"


@pytest.mark.parametrize("pause", [0.0, 600.0])
async def test_a_slot_that_is_given_back_for_another_zone_pauses_nothing(pause: float) -> None:
    """The second one has read the slots before the first one took its own."""
    fleet = Fleet(2, ["a", "b", "b"], pause)
    first, second = fleet.slots(0), fleet.slots(1)
    assert await taken(first) != "ZoneHeld"

    async def opened(_: Sequence[Slot]) -> Sequence[int]:
        return [index for index in (0, 1) if f"{LEASES}/{fleet.pool.lease(index)}" not in fleet.api.objects]

    second._open = opened  # type: ignore[method-assign, assignment]
    with pytest.raises(OutOfTurn, match="zone a"):
        await second.acquire("nodeagent", "op", "update")
    assert [*fleet.held()] == ["n0/op"]
    assert await taken(fleet.slots(2)) == "ZoneHeld"
    assert not any("nodeagent.org/released" in lease["metadata"].get("annotations", {}) for lease in fleet.leases())


@pytest.mark.parametrize(
    ("index", "marked", "reads", "stays"),
    [
        # It has just been taken as well, and finds this one.
        (1, True, 1, True),
        (1, True, WRITES - 1, True),
        # It may have looked before this one was taken, and be about to begin.
        (1, True, WRITES, False),
        (1, False, 1, False),
        (0, True, 1, False),
    ],
)
async def test_who_stays_of_two_that_took_slots_at_the_same_moment(
    index: int, marked: bool, reads: int, stays: bool
) -> None:
    """``index`` is the slot of the other one, which this one finds in ``reads`` reads after it has taken its own."""
    fleet = Fleet(2, ["a", "b"])
    await taken(fleet.slots(1))
    (path,) = (path for path in fleet.api.objects if path.startswith(LEASES))
    other = fleet.api.objects.pop(path)
    other["metadata"]["annotations"] |= {UNCHECKED: "true"} if marked else {}
    member = fleet.slots(0)
    read = member.read

    async def opened(_: Sequence[Slot]) -> Sequence[int]:
        return [1 - index]

    done = itertools.count(1)

    async def released() -> Sequence[Slot]:
        name = fleet.pool.lease(index)
        fleet.api.objects[f"{LEASES}/{name}"] = {**other, "metadata": {**other["metadata"], "name": name}}
        # Two reads come before the slot is taken.
        if next(done) > 2 + reads:
            del fleet.api.objects[f"{LEASES}/{name}"]
        return await read()

    member._open, member.read = opened, released  # type: ignore[method-assign, assignment]
    assert (await taken(member) == fleet.pool.lease(1 - index)) is stays
    assert ("n0/op" in fleet.held()) is stays


async def test_a_check_without_an_answer_leaves_no_slot() -> None:
    fleet = Fleet(2, ["a", "b"])
    member = fleet.slots(0)
    read, answers = member.read, iter([True])

    async def once() -> Any:
        if next(answers, False):
            return await read()
        raise Forbidden("leases is forbidden")

    member.read = once  # type: ignore[method-assign]
    with pytest.raises(Forbidden):
        await member.acquire("nodeagent", "op", "update")
    assert fleet.held() == {}
