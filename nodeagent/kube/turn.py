"""Reads whether it is the turn of this node in the rollout (``core/report/rollout_order.py``), before it takes a slot.

Two lists, of nodes and of pools. They are read only when a slot could be taken, so nodes that wait for a slot do not
read them. Both are quorum reads, and a missing permission is an error: what cannot be read allows nothing.
"""

from __future__ import annotations

from nodeagent.core.report.rollout import ClusterObjects
from nodeagent.core.report.rollout_order import RolloutOrder, turn_gate
from nodeagent.errors import Refused
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import NotFound
from nodeagent.kube.rollout import POOLS

__all__ = ["KubeTurn"]


class KubeTurn:
    def __init__(self, client: KubeClient, node: str, order: RolloutOrder) -> None:
        self._client = client
        self._node = node
        self._order = order

    async def check(self) -> None:
        """Raise ``Refused`` (``PoolHalted``, ``PoolOrder``), and what the client raises."""
        nodes = await self._client.items("/api/v1/nodes")
        try:
            pools = await self._client.items(POOLS)
        except NotFound:
            # The cluster does not have this kind, so the labels of the nodes are the pools.
            pools = []
        gate = turn_gate(ClusterObjects(nodes, pools), self._node, self._order)
        if gate is not None:
            raise Refused(gate.message, reason=gate.reason)
