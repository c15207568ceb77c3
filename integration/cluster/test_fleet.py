# SPDX-License-Identifier: Apache-2.0
"""Hundreds of nodes with one API server: no lease is shared, the number of disrupted nodes is bounded, and what
that costs is known. The judge is the API server's own audit log; the figures are printed as JSON, and written to the
directory that FIGURES names."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.controller import Memory as Fetched
from integration.cluster.other_holders import Agent, client_of, seconds, taken_too_early, written
from integration.cluster.sim_node import QUICK, SimNode
from nodeagent.agent.report.report import Report
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import Refused
from nodeagent.features.cluster.handshake import Handshake
from nodeagent.report.status import Status
from nodeagent.update import wait
from tests.world.run import config

NODES: Final = 200
RIVALS: Final = 2  # agents that believe to be the one of the node: a cloned host, or an old process that still runs
ROUNDS: Final = 2
SPREAD: Final = 10.0  # seconds; less only measures this process, which does the TLS of all of them
SLOTS: Final = 8
RESTING: Final = 100
WINDOW: Final = 75.0  # seconds; longer than the period in which a node looks at its lease

MakeNode = Callable[[], str]


@dataclass
class Cost:
    """From where it is made to ``figures``: time, memory of this process, and what the audit log has of ``user``."""

    cluster: Cluster
    user: str
    began: float = field(default_factory=time.monotonic)
    memory: int = field(default_factory=lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    def figures(self, name: str, **more: Any) -> dict[str, Any]:
        took = time.monotonic() - self.began
        codes = Counter(event["responseStatus"]["code"] for event in requests(self.cluster, self.user))
        grew = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - self.memory
        found = {
            "test": name,
            "seconds": round(took, 1),
            "requests": codes.total(),
            "requests_per_second": round(codes.total() / took, 1),
            "conflicts": codes[409],
            "throttled": codes[429],
            "memory_mb": round(grew / 1024, 1),
            **more,
        }
        text = json.dumps(found)
        print(text)
        if directory := os.environ.get("FIGURES"):
            Path(directory, f"{name}.json").write_text(text + "\n")
        return found


def requests(cluster: Cluster, user: str) -> Iterator[dict[str, Any]]:
    return (event for event in cluster.audit() if event["user"]["username"] == user)


Held = list[tuple[float, float, str]]


def surely_held(cluster: Cluster) -> dict[str, Held]:
    """Return from, until and the holder, by the names of the leases.

    A span lasts from the answer to the acquisition to the request of the release, so that two of them overlap only if
    there were two holders at once.
    """
    since: dict[str, tuple[float, str]] = {}
    spans: defaultdict[str, Held] = defaultdict(list)
    for name, event in written(cluster):
        if event["verb"] == "delete":
            began, holder = since.pop(name, (0.0, ""))
            spans[name].append((began, seconds(event["requestReceivedTimestamp"]), holder))
        elif name not in since:
            holder = event["responseObject"]["spec"].get("holderIdentity") or ""
            since[name] = (seconds(event["stageTimestamp"]), holder)
    for name, (began, holder) in since.items():
        spans[name].append((began, time.time(), holder))  # noqa: TID251 - until now
    return spans


def most_at_once(spans: Held) -> int:
    moments = sorted([(began, 1) for began, _, _ in spans] + [(end, -1) for _, end, _ in spans])
    now = most = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


def outside(inner: Held, outer: Held) -> Held:
    """Spans of ``inner`` that no span of ``outer`` covers."""
    return [one for one in inner if not any(began <= one[0] and one[1] <= end for began, end, _ in outer)]


def test_the_checker_sees_what_it_should() -> None:
    spans = [(1.0, 3.0, "a"), (2.0, 5.0, "b"), (4.0, 6.0, "c"), (5.5, 7.0, "d")]
    assert most_at_once(spans) == 2
    assert most_at_once([*spans, (4.5, 4.6, "e")]) == 3
    assert outside([(2.0, 3.0, "a"), (2.0, 9.0, "b")], [(1.0, 4.0, "slot")]) == [(2.0, 9.0, "b")]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.cluster_failure("two agents take the lease at the same moment")
@pytest.mark.finding("cluster: exclusion in a fleet", "A node never has two holders of its lease.")
async def test_a_fleet_and_its_doubles(cluster: Cluster, make_node: MakeNode) -> None:
    nodes = [await asyncio.to_thread(make_node) for _ in range(NODES)]
    chance = random.Random(7)
    outcomes: Counter[str] = Counter()
    longest: list[float] = []
    inside: Counter[str] = Counter()

    async def one(agent: Agent, name: str) -> None:
        for number in range(ROUNDS):
            operation = f"{name}-{number}"
            while True:
                await asyncio.sleep(chance.uniform(0.0, SPREAD))
                began = time.monotonic()
                try:
                    await agent.lease.acquire("nodeagent", operation, "update")
                except Refused as refused:
                    outcomes[refused.reason] += 1
                    continue
                longest.append(time.monotonic() - began)
                break
            inside[agent.host.node] += 1
            await agent.lease.check(operation, need=60)
            assert inside[agent.host.node] == 1, "two agents in one node's disruption"
            await asyncio.sleep(chance.uniform(0.0, 0.5))
            inside[agent.host.node] -= 1
            await agent.lease.release(operation)
            outcomes["done"] += 1

    async with client_of(cluster, "doubles", timeout=60.0) as client:
        cost = Cost(cluster, "doubles")
        agents = [(Agent(client, HostIdentity(node, f"host-{n}")), f"op-{n}") for node in nodes for n in range(RIVALS)]
        async with asyncio.TaskGroup() as group:
            for agent, name in agents:
                group.create_task(one(agent, name))
    longest.sort()
    median, most = (round(value, 2) for value in (longest[len(longest) // 2], longest[-1]))
    cost.figures(
        "doubles", nodes=NODES, agents=len(agents), acquire_median=median, acquire_most=most, outcomes=dict(outcomes)
    )
    assert outcomes["done"] == NODES * RIVALS * ROUNDS
    assert set(outcomes) <= {"done", "LeaseHeld"}
    assert taken_too_early(cluster, *nodes) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.cluster_failure(
    "two nodes drain at once and wait for each other's budgets",
    "takes the slot before the lease, and gives it back after the lease",
)
@pytest.mark.finding("cluster: exclusion in a fleet", "No more nodes of a pool are disrupted than it has slots.")
async def test_an_update_of_a_whole_pool(
    cluster: Cluster, make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every node has an agent with its own connection, loop and executor. All want the same update at once, and there
    are eight slots."""
    monkeypatch.setattr(wait, "LONGEST_FOR_HOLDER", SPREAD)
    nodes = [await asyncio.to_thread(make_node) for _ in range(NODES)]
    chance = random.Random(7)
    user = "pool-members"
    limits = replace(QUICK, lease_retry=SPREAD)
    members = [SimNode(cluster, node, pool="fleet", slots=SLOTS, user=user, limits=limits) for node in nodes]
    cost = Cost(cluster, user)

    async def update(member: SimNode) -> None:
        member.want(config("one", {"/etc/app/x": "1"}))
        await asyncio.sleep(chance.uniform(0.0, SPREAD))
        await member.settle()

    async with asyncio.TaskGroup() as group:
        for member in members:
            group.create_task(update(member))
    spans = surely_held(cluster)
    disrupted = [span for node in nodes for span in spans[f"node-{node}"]]
    slots = [span for name, every in spans.items() if name.startswith("slot-disrupt-fleet-") for span in every]
    figures = cost.figures("pool", nodes=NODES, slots=SLOTS, most_disrupted=most_at_once(disrupted))
    assert [member.outcomes() for member in members] == [["done"]] * NODES
    assert 1 < figures["most_disrupted"] <= SLOTS
    assert most_at_once(slots) <= SLOTS
    for node in nodes:
        mine = [span for span in slots if span[2].startswith(f"{node}/")]
        held = spans[f"node-{node}"]
        assert len(held) == len(mine) == 1
        assert outside(held, mine) == [], "the slot is taken before the lease, and given back after it"
    assert taken_too_early(cluster, *nodes) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_at_rest_a_node_asks_less_than_once_in_ten_seconds(cluster: Cluster, make_node: MakeNode) -> None:
    """All that the daemon has running of a cluster while nothing happens, with the periods as they are. Every second
    node is under maintenance, so it keeps its lease."""
    user = "at-rest"
    nodes = [await asyncio.to_thread(make_node) for _ in range(RESTING)]
    chance = random.Random(7)
    tasks: list[asyncio.Task[None]] = []
    members = [SimNode(cluster, node, user=user) for node in nodes]
    cost = Cost(cluster, user)
    for number, member in enumerate(members):
        member.build()
        side = member.side
        assert side is not None
        if number % 2:
            await side.lease.acquire("jane", "maintenance.1", "new disks")
            tasks.append(asyncio.create_task(side.lease.keep()))
        reported = member.coordination(Report(Status()).lease)
        shake = Handshake(side.client, member.node, Fetched(), changed=lambda _: None)
        tasks += [asyncio.create_task(work) for work in (reported.poll_holder(chance.random), shake.run())]
    try:
        await asyncio.sleep(SPREAD)  # all have begun
        before = len(list(requests(cluster, user)))
        began = time.monotonic()
        await asyncio.sleep(WINDOW)
        asked = Counter(event["requestURI"] for event in requests(cluster, user))
        took = time.monotonic() - began
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(member.close() for member in members))
    rate = (asked.total() - before) / took / RESTING
    cost.figures("at-rest", nodes=RESTING, requests_per_node_and_second=round(rate, 4))
    assert asked.total() - before >= RESTING, "each looked at its lease"
    assert rate < 0.1
