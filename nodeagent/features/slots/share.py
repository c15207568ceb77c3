# SPDX-License-Identifier: Apache-2.0
"""The size of the pool of this node (``decide/share.py``), by the metadata of all Nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nodeagent.core.coordination.kube_time import Uncertain
from nodeagent.features.slots.decide.pool import Slot, SlotPool
from nodeagent.features.slots.decide.rollout import pool_of
from nodeagent.features.slots.decide.share import PoolSize, limit_of, newest_size, size_of
from nodeagent.features.slots.objects import read_members
from nodeagent.features.slots.own_pool import OwnPool
from nodeagent.kube.client import KubeClient
from nodeagent.update.ports.host import Clock


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
