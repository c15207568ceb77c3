# SPDX-License-Identifier: Apache-2.0
"""Whether it is the turn of this node (``decide/order.py``), and the size of its pool (``decide/limits.py``), by the
metadata of all Nodes.

They are read from the cache of the API server, no older than the own Node, and by the holder of a slot only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from nodeagent.core.coordination.gates import Gate
from nodeagent.core.coordination.kube_time import Uncertain
from nodeagent.features.slots.decide.limits import PoolSize, limit_of, newest_size, size_of
from nodeagent.features.slots.decide.order import RolloutOrder, turn_gate
from nodeagent.features.slots.decide.pool import Slot, SlotPool
from nodeagent.features.slots.decide.rollout import pool_of
from nodeagent.features.slots.decide.turn import TurnVerdict, present_verdicts, refusal, verdict_text
from nodeagent.features.slots.objects import read_members
from nodeagent.features.slots.own_node import OwnPool
from nodeagent.kube.client import KubeClient
from nodeagent.update.ports.host import Clock


class KubeTurn:
    def __init__(self, client: KubeClient, node: str, order: RolloutOrder, clock: Clock) -> None:
        self._client = client
        self._node = node
        self._order = order
        self._clock = clock
        self._pool = OwnPool(client, node, clock)

    async def check(self) -> Gate | None:
        """Return why it is not the turn of this node; None if it is. Raises what the client raises."""
        own = await self._client.node(self._node)
        members = await read_members(self._client, own["metadata"]["resourceVersion"])
        self._pool.keep(own, members.pools)
        return turn_gate(members, self._node, self._order)

    async def verdict(self, gate: Gate) -> str:
        """Return ``gate`` as others read it; "" without a time of the server."""
        with suppress(Uncertain):
            return verdict_text(
                gate, await self._pool.name(), self._client.server_clock.latest(self._clock.monotonic())
            )
        return ""

    async def look(self, slots: Sequence[Slot]) -> None:
        """Raise ``OutOfTurn`` if another node has found a moment ago that it is not the turn of this pool."""
        server, now = self._client.server_clock, self._clock.monotonic()
        verdicts: Sequence[TurnVerdict] = ()
        with suppress(Uncertain):
            verdicts = present_verdicts(slots, server.earliest(now), server.latest(now))
        if verdicts and (refused := refusal(verdicts, await self._pool.name())) is not None:
            raise refused


class KubeShare:
    """``percent`` of the nodes of the pool of ``node`` may have a slot."""

    def __init__(self, client: KubeClient, node: str, percent: int, clock: Clock) -> None:
        self._client = client
        self._node = node
        self._percent = percent
        self._clock = clock
        self._pool = OwnPool(client, node, clock)

    async def sized(self, slots: SlotPool, written: Sequence[Slot]) -> SlotPool:
        """Return the pool with as many slots as a node may try, by the size that others wrote. Raises what the client
        raises."""
        try:
            latest = self._client.server_clock.latest(self._clock.monotonic())
        except Uncertain:
            return self.of(slots, None)
        return self.of(slots, newest_size(written, await self._pool.name(), latest))

    async def read(self) -> PoolSize:
        """Return the size of the pool. Only the holder of a slot calls it. Raises what the client raises."""
        own = await self._client.node(self._node)
        members = await read_members(self._client, own["metadata"]["resourceVersion"])
        self._pool.keep(own, members.pools)
        pool = pool_of(own, members.pools)
        at = self._client.server_clock.latest(self._clock.monotonic())
        return PoolSize(at, pool, size_of(members.nodes, members.pools, pool))

    def of(self, slots: SlotPool, size: PoolSize | None) -> SlotPool:
        nodes = f"{size.nodes} nodes" if size is not None else "its nodes, which are not counted yet"
        limit = limit_of(self._percent, size.nodes if size is not None else 0)
        return replace(slots, count=limit, share=f", {self._percent}% of {nodes}")
