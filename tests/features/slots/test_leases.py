# SPDX-License-Identifier: Apache-2.0
"""How a slot is taken, and what follows if the API server refuses it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from nodeagent.core.coordination.kube_objects import LeaseObject, Node
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.errors import AgentError, OutOfTurn, Retryable, Terminal
from nodeagent.features.slots.decide.pool import SlotKind, SlotPool
from nodeagent.features.slots.decide.rollout import Rollout
from nodeagent.features.slots.decide.stuck import stuck_slots
from nodeagent.features.slots.leases import WRITES, KubeSlots
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Conflict, NotFound
from tests.kube.memory_api import LEASES, NODES, MemoryApi, MemoryClient
from tests.world import FakeClock, World


class ServerClock:
    def earliest(self, at: float) -> float:
        return at


class Server:
    """An API server whose slots do not exist yet. ``error`` is the answer to their creation."""

    server_clock = ServerClock()

    def __init__(self, error: AgentError | None) -> None:
        self.error = error
        self.created = 0

    async def node(self, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": "u"}}

    async def objects(self, *_: object, **__: object) -> Sequence[LeaseObject]:
        return ()

    async def create(self, _path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.created += 1
        if self.error is not None:
            raise self.error
        return {**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": "1"}}


def slots(server: Server) -> KubeSlots:
    client = cast("KubeClient", server)
    return KubeSlots(client, HostIdentity("n", "i"), SlotPool("p", SlotKind.DISRUPT, 1), FakeClock(World()))


@pytest.mark.looptime
async def test_a_slot_that_does_not_exist_is_created() -> None:
    server = Server(None)
    pool = SlotPool("p", SlotKind.DISRUPT, 1)
    assert await slots(server).acquire("nodeagent", "op", "why") == pool.lease(0)
    assert server.created == 1


class Collector(MemoryApi):
    """An API server, and the garbage collector of its cluster."""

    def collect(self) -> None:
        """Delete each object whose owners do not exist, by kind, name and uid, as Kubernetes does."""
        nodes = {
            ("v1", "Node", found["metadata"]["name"], found["metadata"]["uid"])
            for path, found in self.objects.items()
            if path.startswith(NODES)
        }
        for path, found in [*self.objects.items()]:
            owners = found["metadata"].get("ownerReferences") or []
            names = {(one["apiVersion"], one["kind"], one["name"], one["uid"]) for one in owners}
            if names and not names & nodes:
                del self.objects[path]


@pytest.mark.finding("cluster: dead slot holders", "The slot of a deleted Node is deleted with it.")
@pytest.mark.looptime
@pytest.mark.parametrize("pause", [0.0, 60.0])
@pytest.mark.parametrize("again", [False, True])
async def test_a_slot_leaves_with_the_node_that_holds_it(pause: float, again: bool) -> None:
    """``again``: a Node of the same name exists since."""
    api, pool = Collector(), SlotPool("p", SlotKind.DISRUPT, 1, pause)

    def of(node: str) -> KubeSlots:
        clock = FakeClock(World())
        client = MemoryClient(api, clock, asyncio.get_running_loop().time)
        return KubeSlots(client, HostIdentity(node, node), pool, clock)

    for node in ("former", "n", "other"):
        api.add(NODES, node)
    # With a pause, the slot exists already when the node takes it.
    await of("former").acquire("nodeagent", "op", "why")
    await of("former").release("op")
    api.collect()
    await asyncio.sleep(2 * pause)
    name = await of("n").acquire("nodeagent", "op", "why")
    del api.objects[f"{NODES}/former"]
    api.collect()
    with pytest.raises(OutOfTurn):
        await of("other").acquire("nodeagent", "op", "why")
    del api.objects[f"{NODES}/n"]
    if again:
        api.add(NODES, "n")
    (stuck,) = stuck_slots(
        [cast("LeaseObject", api.objects[f"{LEASES}/{name}"])],
        {"n": cast("Node", api.objects[f"{NODES}/n"])} if again else {},
        Rollout((), ()),
        None,
    )
    assert stuck.why == ("its Node was created again" if again else "its Node does not exist")
    assert stuck.command == f"kubectl delete lease -n {LEASES.split('/')[-2]} {name}"
    api.collect()
    assert await of("other").acquire("nodeagent", "op", "why") == name


@pytest.mark.looptime
async def test_without_its_namespace_no_slot_can_be_created() -> None:
    server = Server(NotFound("the namespace does not exist"))
    with pytest.raises(Terminal) as caught:
        await slots(server).acquire("nodeagent", "op", "why")
    assert (caught.value.reason, server.created) == ("LeaseNamespaceMissing", 1)


@pytest.mark.looptime
async def test_a_slot_that_another_node_takes_each_time_is_contended() -> None:
    server = Server(Conflict("it exists"))
    with pytest.raises(Retryable) as caught:
        await slots(server).acquire("nodeagent", "op", "why")
    assert (caught.value.reason, server.created) == ("SlotContended", WRITES)
