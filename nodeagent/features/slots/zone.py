# SPDX-License-Identifier: Apache-2.0
"""The zone of this node (``decide/zone.py``), by a label of its Node."""

from __future__ import annotations

from typing import Final

from nodeagent.core.coordination.kube_objects import Node
from nodeagent.features.slots.decide.zone import zone_of
from nodeagent.kube.client import KubeClient
from nodeagent.update.ports.host import Clock

# Seconds for which the zone counts for a node that waits. It is read again when a slot is taken.
ZONE_EVERY: Final = 600.0


class KubeZone:
    def __init__(self, client: KubeClient, node: str, label: str, clock: Clock) -> None:
        self._client = client
        self._node = node
        self._label = label
        self._clock = clock
        self._zone: tuple[str, float] | None = None

    async def read(self) -> str:
        """Return the zone of this node, "" without the label. Raises what the client raises."""
        if self._zone is None or self._clock.monotonic() - self._zone[1] >= ZONE_EVERY:
            return self.keep(await self._client.node(self._node))
        return self._zone[0]

    def keep(self, node: Node) -> str:
        """Return the zone of ``node``, which is the Node of this host as it was read just now."""
        zone = zone_of(node, self._label)
        self._zone = zone, self._clock.monotonic()
        return zone
