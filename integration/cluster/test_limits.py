# SPDX-License-Identifier: Apache-2.0
"""Limits of a pool on a real API server: one zone at a time, a percentage of its nodes, slots of Nodes that are gone.

The agents have the rights and policies that are shipped. The judge is the API server's own audit log.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from integration.cluster import programs
from integration.cluster.cluster import ADMINS, SLOT_PATH, Cluster
from integration.cluster.controller import Controller
from integration.cluster.other_holders import client_at, seconds, written
from integration.cluster.server import Server
from integration.cluster.test_restarted import install_rights
from integration.cluster.test_rollout_order import rights
from integration.hosts.container.conftest import required
from nodeagent.core.coordination.lease import PREFIX
from nodeagent.door import FleetHost
from nodeagent.errors import AgentError, OutOfTurn, Retryable
from nodeagent.features.slots.decide.pool import ZONE
from nodeagent.features.slots.decide.turn import UNCHECKED
from nodeagent.features.slots.leases import KubeSlots, slots_of
from nodeagent.features.slots.settings import SlotSettings
from nodeagent.host.clock import SystemClock
from nodeagent.settings.schema import Settings

LABEL: Final = "topology.kubernetes.io/zone"
OP: Final = "3f2b"
_numbers = itertools.count(1)

__all__ = ["rights"]  # a fixture


@dataclass
class Member:
    """An agent of a node of the pool."""

    node: str
    slots: KubeSlots
    refusals: set[str] = field(default_factory=set)

    async def take(self) -> str:
        async with asyncio.timeout(120):
            while True:
                try:
                    return await self.slots.acquire("nodeagent", OP, "update")
                except (OutOfTurn, Retryable) as refused:
                    self.refusals.add(str(refused.reason))
                    await asyncio.sleep(0.1)

    async def update(self) -> None:
        await self.take()
        await asyncio.sleep(0.5)
        await self.slots.check(OP)
        await self.slots.release(OP)


@dataclass
class Pool:
    name: str
    cluster: Cluster
    stack: AsyncExitStack

    async def member(self, label: str = "", **limits: Any) -> Member:
        node = f"{self.name}-{next(_numbers)}"
        labels = {"nodeagent.org/pool": self.name, **({LABEL: label} if label else {})}

        def make() -> Any:
            self.cluster.node(node, labels=labels)
            Controller(self.cluster, node).annotate(currentConfig="old", desiredConfig="new")
            return self.cluster.kubeconfig(f"nodeagent:{node}", ["nodeagent"])

        client = await self.stack.enter_async_context(client_at(self.cluster, await asyncio.to_thread(make)))
        settings = Settings(node_name=node)
        host = FleetHost(settings=settings, clock=SystemClock(), host_id=lambda: node)
        slots = slots_of(host, client, SlotSettings(pool=self.name, **limits)).disrupt
        assert isinstance(slots, KubeSlots)
        return Member(node, slots)

    def spans(self) -> Sequence[tuple[float, float, str]]:
        """Return from when until when each slot was surely held by one that had checked its limits, and its zone."""
        found: list[tuple[float, float, str]] = []
        since: dict[str, tuple[float, str]] = {}
        for name, event in written(self.cluster):
            if not name.startswith(f"slot-disrupt-{self.name}-"):
                continue
            answer = event.get("responseObject") or {}
            notes = answer.get("metadata", {}).get("annotations") or {}
            held = event["verb"] != "delete" and answer["spec"].get("holderIdentity")
            if held and PREFIX + UNCHECKED not in notes:
                since.setdefault(name, (seconds(event["stageTimestamp"]), notes.get(PREFIX + ZONE, "")))
            elif name in since:
                began, zone = since.pop(name)
                found.append((began, seconds(event["requestReceivedTimestamp"]), zone))
        return found


def at_once(spans: Sequence[tuple[float, float, str]]) -> list[list[str]]:
    """Return the zones of the slots that were held, at each moment at which one was taken."""
    return [[zone for began, end, zone in spans if began <= moment < end] for moment, _, _ in spans]


@pytest.fixture
async def pool(rights: Cluster) -> AsyncIterator[Pool]:
    install_rights(rights)
    async with AsyncExitStack() as stack:
        yield Pool(f"limited-{next(_numbers)}", rights, stack)


async def test_zones_take_turns(pool: Pool) -> None:
    zones = ("a", "a", "a", "b", "b", "")
    members = [await pool.member(zone, max_unavailable=3, zone=LABEL) for zone in zones]
    await asyncio.gather(*(member.update() for member in members))
    found = at_once(pool.spans())
    assert len(found) == len(zones)
    assert all(len(set(held)) == 1 for held in found), found
    assert max(map(len, found)) >= 2, "nodes of one zone are updated together"
    assert "ZoneHeld" in set().union(*(member.refusals for member in members))


async def test_a_percentage_follows_the_size_of_the_pool(pool: Pool) -> None:
    members = [await pool.member(max_unavailable="30%") for _ in range(10)]
    await asyncio.gather(*(member.update() for member in members))
    found = at_once(pool.spans())
    assert len(found) == 10
    assert max(map(len, found)) <= 3
    assert max(map(len, found)) >= 2, "it is more than one as soon as the nodes are counted"
    for member in members[3:]:
        await asyncio.to_thread(pool.cluster.admin.delete, f"/api/v1/nodes/{member.node}")
    first, second = members[:2]
    await first.take()
    with pytest.raises(OutOfTurn, match=r"1 of 1 slots \(disrupt, 30% of 3 nodes\)") as caught:
        await second.slots.acquire("nodeagent", OP, "update")
    assert caught.value.reason == "SlotHeld"
    assert first.node in caught.value.message


@pytest.fixture
def garbage_collector(cluster: Cluster) -> Iterator[None]:
    program = required(lambda: programs.NODE_MODULE.find("kube-controller-manager"), "no controllers here")
    kubeconfig = cluster.kubeconfig("collector", [ADMINS])
    options = ["--secure-port=0", "--leader-elect=false", "--use-service-account-credentials=false"]
    chosen = "--controllers=garbage-collector-controller"
    server = Server(
        "kube-controller-manager",
        [str(program), f"--kubeconfig={kubeconfig}", *options, chosen],
        cluster.directory / "collector.log",
        bool,
    )
    server.start()
    try:
        yield
    finally:
        server.kill()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.finding("cluster: dead slot holders", "The slot of a deleted Node is deleted with it.")
@pytest.mark.parametrize("again", [False, True])
async def test_the_garbage_collector_frees_the_slot_of_a_node_that_is_gone(
    pool: Pool, garbage_collector: None, make_node: Callable[[], str], again: bool
) -> None:
    """``again``: a Node of the same name is there since."""
    first, second = await pool.member(), await pool.member()
    name = await first.take()
    with pytest.raises(OutOfTurn):
        await second.slots.acquire("nodeagent", OP, "update")
    admin = pool.cluster.admin
    await asyncio.to_thread(admin.delete, f"/api/v1/nodes/{first.node}")
    if again:
        await asyncio.to_thread(pool.cluster.node, first.node)
    assert await second.take() == name
    lease = await asyncio.to_thread(admin.get, f"{SLOT_PATH}/{name}")
    assert lease["spec"]["holderIdentity"] == f"{second.node}/{OP}"
    # The former holder notices it, and takes nothing away.
    with pytest.raises(AgentError):
        await first.slots.check(OP)
    await first.slots.release(OP)
    assert await asyncio.to_thread(admin.find, f"{SLOT_PATH}/{name}") == lease
