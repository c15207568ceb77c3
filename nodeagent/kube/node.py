"""The Node of this host: whether it is ready, and the conditions that the agent writes.

``core.coordination.readiness`` and ``core.report.node_events`` decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Final

from nodeagent.core.coordination.kube_time import seconds_time
from nodeagent.core.coordination.readiness import unready
from nodeagent.core.report.node_events import NodeState, conditions, differing
from nodeagent.core.update.ports.host import Clock
from nodeagent.kube.client import KubeClient, Object
from nodeagent.kube.errors import Forbidden, NotFound

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class KubeReadiness:
    """Implements ``ports.NodeReadiness``."""

    def __init__(self, client: KubeClient, node: str, clock: Clock) -> None:
        self._client = client
        self._node = node
        self._clock = clock

    async def unready(
        self, since: str = "", outdated: Mapping[str, str] | None = None, kept_back: Mapping[str, Decimal] | None = None
    ) -> str:
        """See ``ports.NodeReadiness``. Without the right to read the lease, the condition alone decides."""
        node = await self._client.node(self._node)
        lease = await self._lease() if since else None
        return unready(node, lease, since, self._clock.now(), outdated, kept_back)

    async def _lease(self) -> Object | None:
        try:
            return await self._client.get(f"{LEASES}/{self._node}")
        except (Forbidden, NotFound):
            return None


class NodeConditions:
    def __init__(self, client: KubeClient, node: str, clock: Clock) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._written: NodeState | None = None

    async def publish(self, state: NodeState) -> None:
        """Write the conditions of ``state``, unless this process wrote them last.

        Raises ``Refused`` (``NodeUnknown``) and what the client raises; the next call tries again.
        """
        # It is not shown in the conditions of the Node.
        state = replace(state, progress=None)
        if state == self._written:
            return
        node = await self._client.node(self._node)
        now = seconds_time(self._client.server_clock.earliest(self._clock.monotonic()))
        there = (node.get("status") or {}).get("conditions") or ()
        changed = differing(conditions(state), there, now)
        if changed:
            # A patch by type leaves the conditions alone that the kubelet writes at the same time.
            await self._client.patch_lists(f"/api/v1/nodes/{self._node}/status", {"status": {"conditions": changed}})
        self._written = state
