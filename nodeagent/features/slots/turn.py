# SPDX-License-Identifier: Apache-2.0
"""Whether it is the turn of this node. That is read only when a slot could be taken, so nodes that wait for one read
nothing."""

from __future__ import annotations

from nodeagent.errors import OutOfTurn
from nodeagent.features.slots.decide.order import RolloutOrder, turn_gate
from nodeagent.kube.client import KubeClient
from nodeagent.kube.rollout import read_members


class KubeTurn:
    def __init__(self, client: KubeClient, node: str, order: RolloutOrder) -> None:
        self._client = client
        self._node = node
        self._order = order

    async def check(self) -> None:
        """Raise ``OutOfTurn`` (``PoolHalted``, ``PoolOrder``), and what the client raises."""
        gate = turn_gate(await read_members(self._client), self._node, self._order)
        if gate is not None:
            raise OutOfTurn(gate.message, reason=gate.reason)
