# SPDX-License-Identifier: Apache-2.0
"""What stops an update in a cluster, and what does not: a lease that is taken away, an API server that hangs before and
after the first byte is written, a drain that does not end, slots.

A node is a `SimNode`: the host is one in memory, everything of the cluster is real. The stories of whole updates are in
`test_updates`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest

from integration.cluster.cluster import LEASE_PATH, SLOT_PATH, Cluster
from integration.cluster.other_holders import client_of, foreign, goodbye, lease_of, taken_too_early
from integration.cluster.sim_node import QUICK, SimNode
from integration.cluster.test_drain import Scene, hurry
from nodeagent.agent.loop import Loop
from nodeagent.features.slots.settings import SlotSettings
from nodeagent.update import wait
from nodeagent.update.ports.events import FallbackChosen, UpdateWaiting
from nodeagent.update.ports.system import Inhibitor
from nodeagent.update.stages import admission, drain
from nodeagent.update.states import Phase
from tests.world import FakeUnit
from tests.world.os_host import NEW, OLD, os_host
from tests.world.run import config

__all__ = ["hurry"]  # a fixture, for every test

FIRST: Final = config("first", {"/etc/app/x": "1"})
REBOOTS: Final = config("second", {"/etc/app/x": "1", "/etc/unlisted": "2"})  # no policy knows it: drain and reboot
RESTARTS: Final = config("second", {"/etc/app/x": "2"})
LASTS: Final = 8.0  # seconds, of a lease in these tests; ours for two less


class Quick(SimNode):
    """The lease runs out in seconds, and the client does not wait longer than that."""

    lasts = LASTS

    def build(self) -> Loop:
        loop = super().build()
        assert self.side is not None
        self.side.client._timeout = 1.0
        self.side.lease._duration, self.side.lease._slack = self.lasts, 2.0
        return loop


class Lasting(Quick):
    lasts = 120.0


class Node(Scene):
    """A node with pods, and the agent on it."""

    member: SimNode
    life: asyncio.Task[None] | None = None

    def update(self, new: Any) -> None:
        self.member.want(new)
        self.life = asyncio.create_task(self.member.settle())

    async def rests(self) -> None:
        assert self.life is not None
        await asyncio.wait_for(asyncio.shield(self.life), 180)

    async def until(self, so: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not so():
                await asyncio.sleep(0.05)

    async def phase(self, phase: Phase) -> None:
        await self.until(lambda: self.member.phase is phase)

    @property
    def written(self) -> bool:
        return "/etc/unlisted" in self.member.world.disk

    def given_back(self) -> bool:
        return lease_of(self.cluster, self.node) is None and not self.member.cordoned


Make = Callable[..., Awaitable[Node]]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "MIN_DRAIN", 1.0)
    monkeypatch.setattr(admission, "NEED", 2.0)
    monkeypatch.setattr(wait, "LONGEST_FOR_HOLDER", 1.0)


@pytest.fixture
async def make_member(cluster: Cluster, make_node: Callable[[], str]) -> AsyncIterator[Make]:
    """A node at rest with its first config."""
    made: list[tuple[Node, asyncio.Task[None]]] = []
    async with client_of(cluster) as client:

        async def make(kind: type[SimNode] = Quick, *, first: Any = FIRST, staging: int = 0, **more: Any) -> Node:
            name = make_node()
            cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": f"update-{name}"}})
            node = Node(cluster, client, name, f"update-{name}")
            member = node.member = kind(cluster, name, on_remaining=node.seen.append, **more)
            slots = msgspec.structs.replace(member._settings.of(SlotSettings), max_staging=staging)
            member._settings = msgspec.structs.replace(member._settings, parts=(slots,))
            made.append((node, asyncio.create_task(node.kubelet())))
            node.update(first)
            await node.rests()
            assert member.phase is Phase.IDLE
            member.world.done.clear()
            member.world.events.clear()
            return node

        yield make
        cluster.resume()
        for node, kubelet in made:
            for task in (node.life, kubelet):
                if task is not None:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
    await goodbye(cluster)


@pytest.fixture
async def node(make_member: Make) -> Node:
    return await make_member()


async def draining_node(node: Node) -> None:
    """Return in the middle of a drain that a budget blocks."""
    node.pod("web")
    node.budget("web-budget", "web", allowed=0)
    node.update(REBOOTS)
    await node.why("web", "web-budget")


@pytest.mark.cluster_failure(
    "the lease is stolen during the drain", "no further eviction, no reboot; the cordon is left to the new holder"
)
async def test_a_lease_that_is_stolen_in_the_drain(cluster: Cluster, node: Node) -> None:
    """Case 7: no eviction and no byte after it; the cordon is left for the thief, and the update comes later."""
    await draining_node(node)
    foreign(cluster, node.node)
    node.budget("web-budget", "web", allowed=1)
    assert "the node stays cordoned until then" in await node.member.reported(UpdateWaiting, "LeaseHeld")
    assert (node.names(), node.written, node.member.cordoned) == (["web"], False, True)
    cluster.admin.delete(f"{LEASE_PATH}/node-{node.node}")
    await node.rests()
    assert (node.member.phase, node.member.record.reason) == (Phase.DEGRADED, "LeaseLost")
    assert node.given_back()
    node.update(REBOOTS)
    await node.rests()
    assert (node.member.phase, node.written) == (Phase.IDLE, True)
    assert node.given_back()


@pytest.mark.cluster_failure("an admin deletes the lease", "cancels the update; an operator applies it again")
async def test_a_lease_that_is_deleted_in_the_drain(cluster: Cluster, node: Node) -> None:
    """Case 8: this cancels the update. The node is not taken again for it."""
    await draining_node(node)
    cluster.admin.delete(f"{LEASE_PATH}/node-{node.node}")
    node.budget("web-budget", "web", allowed=1)
    await node.rests()
    assert (node.member.phase, node.member.record.reason) == (Phase.DEGRADED, "LeaseLost")
    assert (node.names(), node.written) == (["web"], False)
    assert node.given_back()
    node.update(REBOOTS)
    await node.rests()
    assert not node.written, "a look at the same config is no new request"
    assert lease_of(cluster, node.node) is None


@pytest.mark.cluster_failure(
    "the API server is down, nothing was written", "waits; takes an expired lease again if it is free"
)
async def test_an_api_server_that_hangs_before_the_first_byte(cluster: Cluster, node: Node) -> None:
    """Case 9: it pauses; when the lease has run out it still does, and goes on with what is still its own."""
    await draining_node(node)
    cluster.apiserver.pause()
    assert "the lease ran out" in await node.member.reported(UpdateWaiting, "LeaseExpired")
    assert not node.written
    assert node.member.phase is Phase.DRAINING
    cluster.apiserver.resume()
    node.budget("web-budget", "web", allowed=1)
    await node.rests()
    assert (node.member.phase, node.written, node.names()) == (Phase.IDLE, True, [])
    assert node.given_back()
    assert taken_too_early(cluster, node.node) == []


@pytest.mark.cluster_failure("the API server is down before the reboot")
async def test_an_api_server_that_hangs_after_the_first_byte(cluster: Cluster, make_member: Make) -> None:
    """Case 10: the lease is good for a while, so the host is rebooted; what waits afterwards is giving back."""
    node = await make_member(Lasting)
    node.member.world.blockers.append(Inhibitor("backup", "copies", "backup[77]"))
    node.update(REBOOTS)
    await node.member.reported(UpdateWaiting, "RebootBlocked")
    cluster.apiserver.pause()
    node.member.world.blockers.clear()
    await node.until(lambda: node.member.world.boot == 2)
    await node.phase(Phase.RELEASING)
    await node.member.reported(UpdateWaiting, "KubeUnreachable")
    assert node.member.outcomes()[-1] == "done"
    cluster.apiserver.resume()
    await node.rests()
    assert node.given_back()


@pytest.mark.cluster_failure(
    "the API server is down before the reboot",
    "reboots while the lease lasts, otherwise waits with everything in place",
)
async def test_nothing_is_rebooted_blind(cluster: Cluster, node: Node) -> None:
    """Case 10: the lease has run out by then. The host stays up."""
    node.member.world.blockers.append(Inhibitor("backup", "copies", "backup[77]"))
    node.update(REBOOTS)
    await node.member.reported(UpdateWaiting, "RebootBlocked")
    cluster.apiserver.pause()
    await asyncio.sleep(LASTS)
    node.member.world.blockers.clear()
    await node.member.reported(UpdateWaiting, "LeaseExpired")
    assert node.member.world.boot == 1
    cluster.apiserver.resume()
    await node.rests()
    assert (node.member.phase, node.member.world.boot) == (Phase.IDLE, 2)
    assert node.given_back()


async def test_after_its_deadline_a_drain_ends_in_the_reboot(make_member: Make) -> None:
    node = await make_member(limits=replace(QUICK, drain_timeout=3))
    await draining_node(node)
    left = await node.member.reported(FallbackChosen, "DrainTimedOut")
    assert f"{node.namespace}/web: a disruption budget" in left
    await node.rests()
    assert (node.member.phase, node.member.world.boot, node.names()) == (Phase.IDLE, 2, ["web"])
    assert node.given_back()


@pytest.mark.cluster_failure("a disruption budget allows no eviction")
async def test_after_its_deadline_a_drain_is_given_up_as_set(make_member: Make) -> None:
    node = await make_member(limits=replace(QUICK, drain_timeout=3, drain_or_reboot=False))
    await draining_node(node)
    await node.rests()
    assert (node.member.phase, node.member.record.reason) == (Phase.DEGRADED, "DrainTimedOut")
    assert (node.names(), node.written) == (["web"], False)
    assert node.given_back()
    node.budget("web-budget", "web", allowed=1)
    node.update(REBOOTS)
    await node.rests()
    assert (node.member.phase, node.written, node.names()) == (Phase.IDLE, True, [])


async def test_a_fallback_reboot_drains_first(node: Node) -> None:
    node.pod("web")
    node.member.world.units["app.service"] = FakeUnit(bad_until_boot=2)
    node.update(RESTARTS)
    await node.rests()
    assert node.member.actions() == ["restart app.service", "reboot"]
    assert node.member.outcomes()[-1] == "done-after-fallback"
    assert node.names() == []
    assert node.given_back()


def holders(cluster: Cluster, kind: str, pool: str) -> list[str]:
    items = cluster.admin.get(SLOT_PATH, labelSelector=f"nodeagent.org/slot={kind},nodeagent.org/pool={pool}")["items"]
    return [item["spec"]["holderIdentity"].partition("/")[0] for item in items]


async def test_one_after_the_other(cluster: Cluster, make_member: Make) -> None:
    pool = "one-by-one"
    first, second = [await make_member(pool=pool) for _ in range(2)]
    await draining_node(first)
    second.update(REBOOTS)
    assert first.node in await second.member.reported(UpdateWaiting, "SlotHeld")
    assert lease_of(cluster, second.node) is None, "first the slot, then the node lease"
    assert holders(cluster, "disrupt", pool) == [first.node]
    first.budget("web-budget", "web", allowed=1)
    await first.rests()
    await second.rests()
    assert {first.member.phase, second.member.phase} == {Phase.IDLE}
    assert holders(cluster, "disrupt", pool) == []


async def test_a_node_that_failed_holds_the_others_back(cluster: Cluster, make_member: Make) -> None:
    pool = "one-that-failed"
    first = await make_member(pool=pool, limits=replace(QUICK, revert=False))
    second = await make_member(pool=pool)
    first.member.world.units["app.service"] = FakeUnit(bad_until_boot=99)
    first.update(RESTARTS)
    await first.rests()
    assert first.member.phase is Phase.DEGRADED
    second.update(RESTARTS)
    assert first.node in await second.member.reported(UpdateWaiting, "SlotHeld")
    (slot,) = cluster.admin.get(SLOT_PATH, labelSelector=f"nodeagent.org/pool={pool}")["items"]
    cluster.admin.delete(f"{SLOT_PATH}/{slot['metadata']['name']}")  # an operator has looked
    await second.rests()
    assert second.member.phase is Phase.IDLE


async def test_a_node_that_failed_holds_the_others_back_until_it_is_repaired(
    cluster: Cluster, make_member: Make
) -> None:
    pool = "one-that-is-repaired"
    first = await make_member(pool=pool, limits=replace(QUICK, revert=False))
    second = await make_member(pool=pool)
    first.member.world.units["app.service"] = FakeUnit(bad_until_boot=99)
    first.update(RESTARTS)
    await first.rests()
    assert (first.member.phase, lease_of(cluster, first.node) is None) == (Phase.DEGRADED, False)
    second.update(RESTARTS)
    await second.member.reported(UpdateWaiting, "SlotHeld")
    first.member.world.units["app.service"] = FakeUnit()
    first.update(REBOOTS)
    await first.rests()
    assert (first.member.phase, first.given_back()) == (Phase.IDLE, True)
    await second.rests()
    assert second.member.phase is Phase.IDLE
    assert holders(cluster, "disrupt", pool) == []


async def test_so_many_stage_at_once(cluster: Cluster, make_member: Make) -> None:
    pool = "stagers"
    worlds = [os_host().world for _ in range(2)]
    for world in worlds:
        world.stage_seconds = 3
    made = [await make_member(first=OLD, pool=pool, slots=2, staging=1, world=world) for world in worlds]
    for node in made:
        node.update(NEW)
    held: set[tuple[str, ...]] = set()
    while not all(node.life is not None and node.life.done() for node in made):
        held.add(tuple(await asyncio.to_thread(holders, cluster, "stage", pool)))
        await asyncio.sleep(0.1)
    for node in made:
        await node.rests()
    assert {(node.node,) for node in made} <= held
    assert max(map(len, held)) == 1
    assert {node.member.configs[node.member.world.current].name for node in made} == {"new"}
    assert holders(cluster, "stage", pool) == []
