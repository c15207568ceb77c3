# SPDX-License-Identifier: Apache-2.0
"""A roll-out and a fleet at rest, with nodeagent's own code and an API server in memory that counts, in virtual time.

Each node has the coordination of the daemon: slots, node lease, signs of others, the waits between two attempts.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Final

from integration.cluster.controller import Memory as Fetched
from integration.cluster.other_holders import Memory
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.features.cluster.gates import KubeGates
from nodeagent.features.cluster.handshake import Handshake
from nodeagent.features.cluster.lease import KubeLease
from nodeagent.features.slots.decide.pool import SlotKind, SlotPool
from nodeagent.features.slots.leases import KubeSlots
from nodeagent.update.ports.events import UpdateWaiting
from nodeagent.update.stages.coordination import Coordination, Operation
from nodeagent.update.wait import NotNow, Waiting, retry_on_refusal
from tests.kube.memory_api import NODES, MemoryApi, MemoryClient
from tests.world import World
from tests.world.run import LIMITS, Host

# Seconds in which the agents of a fleet follow a new config that all nodes get at once.
SPREAD: Final = 36.0
POLICY: Final = replace(LIMITS, lease_retry=15.0)
MCO: Final = "machineconfiguration.openshift.io/"


@dataclass
class Fleet:
    api: MemoryApi = field(default_factory=MemoryApi)
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    held: float = 0.0
    last_taken: float = 0.0
    news: int = 0

    def side(self, node: str, slots: int) -> tuple[MemoryClient, Coordination, Host]:
        host = Host(World(), POLICY)
        clock = host.ports().clock
        client = MemoryClient(self.api, clock, asyncio.get_running_loop().time)
        identity = HostIdentity(node, f"host-of-{node}")
        return (
            client,
            Coordination(
                KubeLease(client, identity, Memory(), clock),
                slot=KubeSlots(client, identity, SlotPool("p", SlotKind.DISRUPT, slots), clock) if slots else None,
                gates=KubeGates(client, node, controls_node=True),
            ),
            host,
        )

    def add(self, node: str) -> None:
        notes = {MCO + "currentConfig": "", MCO + "state": "Done"}
        self.api.add(NODES, node, metadata={"annotations": notes}, spec={}, status={})

    async def update(self, node: str, slots: int, hold: float) -> None:
        """One update of a node: it waits for its turn, is disrupted for about ``hold`` seconds, and releases."""
        _, coordination, host = self.side(node, slots)
        waiting = Waiting(host.ports(), lambda: POLICY, None, self.chance.random)
        operation = Operation(f"op-{node}", "nodeagent", "update", stops_node=True)
        await asyncio.sleep(self.chance.uniform(0.0, SPREAD))
        while True:
            try:
                with retry_on_refusal():
                    await coordination.acquire(operation)
                break
            except NotNow as error:
                await asyncio.sleep(waiting.report(error.wait))
        began = asyncio.get_running_loop().time()
        self.last_taken = max(self.last_taken, began)
        await coordination.recheck(operation)
        await asyncio.sleep(hold * self.chance.uniform(0.8, 1.2))
        await coordination.release(operation)
        self.held += asyncio.get_running_loop().time() - began
        emitted = [event for event in host.world.events if isinstance(event, UpdateWaiting)]
        self.news += sum(not event.routine for event in emitted)


async def roll_out(nodes: int, slots: int, hold: float) -> dict[str, Any]:
    fleet, names = Fleet(), [f"n{number}" for number in range(nodes)]
    for name in names:
        fleet.add(name)
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(fleet.update(name, slots, hold))
    took = asyncio.get_running_loop().time()
    asked = fleet.api.asked
    return {
        "nodes": nodes,
        "slots": slots,
        "seconds": round(took),
        "longer_than_ideal": round(took / (nodes / slots * hold) - 1, 3),
        "requests": asked.total(),
        "requests_per_node": round(asked.total() / nodes, 1),
        "requests_per_second": round(asked.total() / took, 3),
        "texts_per_node": round(fleet.news / nodes, 2),
        "by_kind": dict(Counter(asked).most_common()),
    }


async def at_rest(nodes: int, seconds: float) -> dict[str, Any]:
    """The watch of the Node and the polls of the lease, from the start of the agents, with the periods as they are."""
    fleet, tasks = Fleet(), []
    for number in range(nodes):
        fleet.add(f"n{number}")
        client, coordination, _ = fleet.side(f"n{number}", 0)
        shake = Handshake(client, f"n{number}", Fetched(), changed=lambda _: None)
        tasks += [asyncio.create_task(work) for work in (coordination.poll_holder(fleet.chance.random), shake.run())]
    await asyncio.sleep(0)
    fleet.api.asked.clear()
    await asyncio.sleep(seconds)
    asked = fleet.api.asked.total()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "nodes": nodes,
        "requests_per_second": round(asked / seconds, 3),
        "requests_per_second_and_node": round(asked / seconds / nodes, 4),
    }
