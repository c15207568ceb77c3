# SPDX-License-Identifier: Apache-2.0
"""The pool and the zone of this node by the labels of its Node, which a node that waits reads from time to time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nodeagent.core.coordination.kube_objects import MachineConfigPool, Node
from nodeagent.features.slots.decide.limits import zone_of
from nodeagent.features.slots.decide.rollout import pool_of
from nodeagent.features.slots.objects import read_pools
from nodeagent.kube.client import KubeClient
from nodeagent.update.ports.host import Clock

# Seconds for which the labels of the own Node count for a node that waits. They are read again when a slot is taken.
LABELS_EVERY: Final = 600.0


class OwnPool:
    def __init__(self, client: KubeClient, node: str, clock: Clock) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._pool: tuple[str | None, float] | None = None

    async def name(self) -> str | None:
        """Return the pool of this node; None for a node of no pool. Raises what the client raises."""
        if self._pool is not None and self._clock.monotonic() - self._pool[1] < LABELS_EVERY:
            return self._pool[0]
        own = await self._client.node(self._node)
        return self.keep(own, await read_pools(self._client))

    def keep(self, node: Node, pools: Sequence[MachineConfigPool]) -> str | None:
        """Return the pool of ``node``, which is the Node of this host as it was read just now."""
        pool = pool_of(node, pools)
        self._pool = pool, self._clock.monotonic()
        return pool


class KubeZone:
    def __init__(self, client: KubeClient, node: str, label: str, clock: Clock) -> None:
        self._client = client
        self._node = node
        self._label = label
        self._clock = clock
        self._zone: tuple[str, float] | None = None

    async def read(self) -> str:
        """Return the zone of this node, "" without the label. Raises what the client raises."""
        if self._zone is None or self._clock.monotonic() - self._zone[1] >= LABELS_EVERY:
            return self.keep(await self._client.node(self._node))
        return self._zone[0]

    def keep(self, node: Node) -> str:
        """Return the zone of ``node``, which is the Node of this host as it was read just now."""
        zone = zone_of(node, self._label)
        self._zone = zone, self._clock.monotonic()
        return zone
