# SPDX-License-Identifier: Apache-2.0
"""The pool of this node in the cluster, which is rarely read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nodeagent.core.coordination.kube_objects import MachineConfigPool, Node
from nodeagent.features.slots.decide.rollout import pool_of
from nodeagent.features.slots.objects import read_pools
from nodeagent.kube.client import KubeClient
from nodeagent.update.ports.host import Clock

# Seconds for which the pool of the own Node counts, before its labels are read again.
POOL_EVERY: Final = 600.0


class OwnPool:
    def __init__(self, client: KubeClient, node: str, clock: Clock) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._pool: tuple[str | None, float] | None = None

    async def name(self) -> str | None:
        """Return the pool of this node; None for a node of no pool. Raises what the client raises."""
        if self._pool is not None and self._clock.monotonic() - self._pool[1] < POOL_EVERY:
            return self._pool[0]
        own = await self._client.node(self._node)
        return self.keep(own, await read_pools(self._client))

    def keep(self, node: Node, pools: Sequence[MachineConfigPool]) -> str | None:
        """Return the pool of ``node``, which is the Node of this host as it was read just now."""
        pool = pool_of(node, pools)
        self._pool = pool, self._clock.monotonic()
        return pool
