# SPDX-License-Identifier: Apache-2.0
"""Slots of a pool on a real API server: never more nodes than slots, and whose slots stay when things go wrong."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from integration.cluster.cluster import LEASE_PATH, LEASES, Cluster
from integration.cluster.other_holders import client_of, goodbye, seconds, written
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import Refused, Retryable
from nodeagent.features.slots.decide.pool import SlotKind, SlotPool
from nodeagent.features.slots.leases import KubeSlots
from nodeagent.host.clock import SystemClock
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import NoAnswer

OP = "3f2b"
WHY = "update to rendered-2"
MakeSlots = Callable[..., KubeSlots]
_pools = itertools.count(1)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with client_of(cluster, timeout=2.0) as made:
        yield made
    await goodbye(cluster)


@pytest.fixture
def pool() -> str:
    return f"workers-{next(_pools)}"


@pytest.fixture
def slots_of(client: KubeClient, pool: str) -> MakeSlots:
    def make(
        node: str, count: int = 1, kind: SlotKind = SlotKind.DISRUPT, instance: str = "host-a", pause: float = 0.0
    ) -> KubeSlots:
        about = SlotPool(pool, kind, count, pause)
        return KubeSlots(client, HostIdentity(node, instance), about, SystemClock(), namespace=LEASES)

    return make


async def refused(what: Any, reason: str) -> str:
    with pytest.raises(Refused) as caught:
        await what
    assert caught.value.reason == reason
    return caught.value.message


def most_held(cluster: Cluster, prefix: str) -> int:
    """By the API server's account of its writes, in their order."""
    held: set[str] = set()
    most = 0
    for name, event in written(cluster):
        if name.startswith(prefix):
            held = held - {name} if event["verb"] == "delete" else held | {name}
            most = max(most, len(held))
    return most


async def test_taken_kept_and_given_back(
    cluster: Cluster, make_node: Callable[[], str], slots_of: MakeSlots, pool: str
) -> None:
    one, other = make_node(), make_node()
    name = await slots_of(one).acquire("nodeagent", OP, WHY)
    assert name == f"slot-disrupt-{pool}-0"
    lease = cluster.admin.get(f"{LEASE_PATH}/{name}")
    assert lease["spec"]["holderIdentity"] == f"{one}/{OP}"
    assert "leaseDurationSeconds" not in lease["spec"], "it does not expire"
    assert lease["metadata"]["annotations"]["nodeagent.org/reason"] == WHY
    (owner,) = lease["metadata"]["ownerReferences"]
    assert owner["uid"] == cluster.admin.get(f"/api/v1/nodes/{one}")["metadata"]["uid"], "it goes with its Node"

    assert await slots_of(one).acquire("nodeagent", OP, WHY) == name
    assert cluster.admin.get(f"{LEASE_PATH}/{name}") == lease, "nothing was written"
    message = await refused(slots_of(other).acquire("nodeagent", OP, WHY), "SlotHeld")
    assert f"1 of 1 slots (disrupt) of pool {pool} are held: {one} since " in message
    await slots_of(other).release(OP)
    await slots_of(one).release("another")
    await slots_of(one).check(OP)
    await slots_of(one).release(OP)
    await slots_of(one).release(OP)
    await refused(slots_of(one).check(OP), "SlotLost")
    await slots_of(other).acquire("nodeagent", OP, WHY)


@pytest.mark.cluster_failure("two nodes drain at once and wait for each other's budgets")
async def test_never_more_nodes_than_slots(
    cluster: Cluster, make_node: Callable[[], str], slots_of: MakeSlots, pool: str
) -> None:
    nodes = [make_node() for _ in range(9)]
    done: list[str] = []

    async def update(node: str) -> None:
        slots = slots_of(node, 3)
        while True:
            try:
                await slots.acquire("nodeagent", OP, WHY)
                break
            except (Refused, Retryable):  # all are held, or others were faster each time
                await asyncio.sleep(0.05)
        await slots.check(OP)
        await slots.release(OP)
        done.append(node)

    await asyncio.wait_for(asyncio.gather(*map(update, nodes)), 180)
    assert sorted(done) == sorted(nodes)
    assert 1 < most_held(cluster, f"slot-disrupt-{pool}-") <= 3


async def test_staging_is_counted_apart(make_node: Callable[[], str], slots_of: MakeSlots) -> None:
    one, other = make_node(), make_node()
    await slots_of(one).acquire("nodeagent", OP, WHY)
    await slots_of(one, 2, SlotKind.STAGE).acquire("nodeagent", OP, WHY)
    await slots_of(other, 2, SlotKind.STAGE).acquire("nodeagent", OP, WHY)
    await refused(slots_of(other).acquire("nodeagent", OP, WHY), "SlotHeld")


async def test_a_failed_node_keeps_its_slot_until_an_operator_frees_it(
    cluster: Cluster, make_node: Callable[[], str], slots_of: MakeSlots
) -> None:
    failed, next_one = make_node(), make_node()
    name = await slots_of(failed).acquire("nodeagent", OP, WHY)
    # The same node goes on with it under another operation; a second host of that name does not.
    assert await slots_of(failed).acquire("nodeagent", "9c1d", "update to rendered-3") == name
    await refused(slots_of(failed).check(OP), "SlotLost")
    await refused(slots_of(failed, instance="host-b").acquire("nodeagent", OP, WHY), "SlotHeld")
    await refused(slots_of(next_one).acquire("nodeagent", OP, WHY), "SlotHeld")
    cluster.admin.patch(f"{LEASE_PATH}/{name}", {"spec": {"holderIdentity": None}})
    await refused(slots_of(failed).check("9c1d"), "SlotLost")
    assert await slots_of(next_one).acquire("nodeagent", OP, WHY) == name


async def test_a_pool_that_was_made_smaller(
    make_node: Callable[[], str], slots_of: MakeSlots, client: KubeClient
) -> None:
    nodes = [make_node() for _ in range(3)]
    names = {await slots_of(node, 3).acquire("nodeagent", OP, WHY): node for node in nodes}
    highest = names[max(names)]
    for node in nodes:
        if node != highest:
            await slots_of(node, 3).release(OP)
    late = nodes[0] if nodes[0] != highest else nodes[1]
    await refused(slots_of(late, 1).acquire("nodeagent", OP, WHY), "SlotHeld")
    await slots_of(late, 2).acquire("nodeagent", OP, WHY)


@pytest.mark.cluster_failure("a write gets no answer")
async def test_a_write_without_an_answer_leaves_no_second_slot(
    cluster: Cluster, node: str, slots_of: MakeSlots, monkeypatch: pytest.MonkeyPatch, client: KubeClient
) -> None:
    create = client.create

    async def lost(*args: Any, **kwargs: Any) -> Any:
        await create(*args, **kwargs)
        raise NoAnswer("no answer")

    slots = slots_of(node, 3)
    monkeypatch.setattr(client, "create", lost)
    with pytest.raises(NoAnswer):
        await slots.acquire("nodeagent", OP, WHY)
    monkeypatch.setattr(client, "create", create)
    await slots.acquire("nodeagent", OP, WHY)
    assert len(await slots.read()) == 1
    await slots.release(OP)
    assert await slots.read() == []


async def test_a_node_that_is_not_in_the_cluster(slots_of: MakeSlots) -> None:
    await refused(slots_of("node-none").acquire("nodeagent", OP, WHY), "NodeUnknown")
    await slots_of("node-none").release(OP)


PAUSE = 4.0


def begun_too_early(cluster: Cluster, prefix: str, pause: float) -> list[str]:
    """Return the acquisitions that came less than ``pause`` seconds after a release, by the audit log."""
    held: dict[str, str] = {}
    last, found = float("-inf"), []
    for name, event in written(cluster):
        if not name.startswith(prefix):
            continue
        before = held.get(name, "")
        holder = held[name] = (event.get("responseObject") or {}).get("spec", {}).get("holderIdentity") or ""
        if before and not holder:
            last = max(last, seconds(event["requestReceivedTimestamp"]))
        elif holder and not before and (at := seconds(event["stageTimestamp"])) < last + pause:
            found.append(f"{holder} took {name} {last + pause - at:.3f} s too early")
    return found


async def until_taken(slots: KubeSlots, operation: str = OP) -> float:
    """Try without end, and return the seconds until the slot was taken."""
    began = time.monotonic()
    while True:
        try:
            await slots.acquire("nodeagent", operation, WHY)
        except (Refused, Retryable):
            await asyncio.sleep(0.05)
        else:
            return time.monotonic() - began


@pytest.mark.parametrize("count", [1, 2])
async def test_the_pool_pauses_between_two_nodes(
    cluster: Cluster, make_node: Callable[[], str], slots_of: MakeSlots, pool: str, count: int
) -> None:
    nodes = [make_node() for _ in range(3)]

    async def update(node: str) -> None:
        await until_taken(slots_of(node, count, pause=PAUSE))
        # Another process goes on, as after a reboot.
        await slots_of(node, count, pause=PAUSE).check(OP)
        await slots_of(node, count, pause=PAUSE).release(OP)

    # With two slots, nodes that begin together do not wait for each other.
    await asyncio.wait_for(asyncio.gather(*map(update, nodes[:count])), 180)
    await asyncio.wait_for(asyncio.gather(*map(update, nodes[count:])), 120)
    assert 1 <= most_held(cluster, f"slot-disrupt-{pool}-") <= count
    early = begun_too_early(cluster, f"slot-disrupt-{pool}-", PAUSE)
    # Nodes that begin together may have read the slots before the first of them was released.
    assert [found for found in early if count == 1 or nodes[-1] in found] == []


async def test_a_pause_is_named_and_survives_its_node_and_the_agents(
    cluster: Cluster, make_node: Callable[[], str], slots_of: MakeSlots, pool: str
) -> None:
    one, other = make_node(), make_node()
    name = await slots_of(one, pause=3600).acquire("nodeagent", OP, WHY)
    await slots_of(one, pause=3600).release(OP)
    lease = cluster.admin.get(f"{LEASE_PATH}/{name}")
    assert "ownerReferences" not in lease["metadata"]
    assert "holderIdentity" not in lease["spec"]
    cluster.admin.delete(f"/api/v1/nodes/{one}")
    for _ in range(2):
        message = await refused(slots_of(other, pause=3600).acquire("nodeagent", OP, WHY), "SlotPaused")
        assert message.startswith(f"pool {pool} pauses after an update: until 20")
        assert f", because {one} released its slot at 20" in message
    # The way out of an operator.
    cluster.admin.delete(f"{LEASE_PATH}/{name}")
    await slots_of(other, pause=3600).acquire("nodeagent", OP, WHY)


async def test_the_node_with_the_slot_does_not_pause(node: str, slots_of: MakeSlots, make_node: Any) -> None:
    """Its update goes on after the release of another node, also under another operation."""
    other = make_node()
    await slots_of(node, 2, pause=3600).acquire("nodeagent", OP, WHY)
    await slots_of(other, 2, pause=3600).acquire("nodeagent", OP, WHY)
    await slots_of(other, 2, pause=3600).release(OP)
    await slots_of(node, 2, pause=3600).acquire("nodeagent", OP, WHY)
    await slots_of(node, 2, pause=3600).acquire("nodeagent", "9c1d", WHY)
    await refused(slots_of(other, 2, pause=3600).acquire("nodeagent", OP, WHY), "SlotPaused")


@pytest.mark.parametrize("note", [None, "no time", "2999-01-01T00:00:00Z n"])
async def test_a_slot_that_was_freed_at_an_unknown_time(
    cluster: Cluster, make_node: Callable[[], str], slots_of: MakeSlots, note: str | None
) -> None:
    one, other = make_node(), make_node()
    name = await slots_of(one, pause=2).acquire("nodeagent", OP, WHY)
    patch = {"metadata": {"annotations": {"nodeagent.org/released": note}}, "spec": {"holderIdentity": None}}
    cluster.admin.patch(f"{LEASE_PATH}/{name}", patch)
    message = await refused(slots_of(other, pause=2).acquire("nodeagent", OP, WHY), "SlotPaused")
    assert "for 2 s, because a slot was freed at a time that is not known" in message
    assert await asyncio.wait_for(until_taken(slots_of(other, pause=2)), 60) >= 2
