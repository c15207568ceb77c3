"""Hundreds of nodes against one API server: nobody ever shares a lease, and what that costs is known."""

from __future__ import annotations

import asyncio
import random
import resource
import time
from collections import Counter
from collections.abc import Callable

import pytest

from integration.cluster.agents import Agent, client_of, taken_too_early
from integration.cluster.cluster import Cluster
from nodeagent.errors import Refused
from nodeagent.kube.lease import LeaseSettings

NODES = 200
RIVALS = 2  # agents that believe to be the one of the node: a cloned host, or an old process that still runs
ROUNDS = 2
SPREAD = 10.0  # seconds; less only measures this process, which does the TLS of all of them


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_fleet_and_its_doubles(cluster: Cluster, make_node: Callable[[], str]) -> None:
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
            inside[agent.settings.node] += 1
            await agent.lease.check(operation, need=60)
            assert inside[agent.settings.node] == 1, "two agents in one node's disruption"
            await asyncio.sleep(chance.uniform(0.0, 0.5))
            inside[agent.settings.node] -= 1
            await agent.lease.release(operation)
            outcomes["done"] += 1

    async with client_of(cluster, timeout=60.0) as client:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.monotonic()
        agents = [(Agent(client, LeaseSettings(node, f"host-{n}")), f"op-{n}") for node in nodes for n in range(RIVALS)]
        async with asyncio.TaskGroup() as group:
            for agent, name in agents:
                group.create_task(one(agent, name))
        took = time.monotonic() - began
        grew = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    longest.sort()
    median, most = longest[len(longest) // 2], longest[-1]
    print(
        f"{NODES} nodes, {len(agents)} agents: {took:.0f} s, {client.requests / took:.0f} requests a second, "
        f"acquire median {median:.2f} s, most {most:.2f} s, {grew:.0f} MB more, {dict(outcomes)}"
    )
    assert outcomes["done"] == NODES * RIVALS * ROUNDS
    assert set(outcomes) <= {"done", "LeaseHeld"}
    assert taken_too_early(cluster, *nodes) == []
