"""Writes the conditions of the Node that differ; ``core/report/conditions.py`` decides what they contain."""

from __future__ import annotations

from nodeagent.core.coordination.kube_time import Uncertain, seconds_time
from nodeagent.core.report.conditions import NodeState, conditions, differing
from nodeagent.core.update.ports.host import Clock
from nodeagent.errors import Refused, Retryable
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import NotFound
from nodeagent.reasons import Reason

__all__ = ["NodeConditions"]


class NodeConditions:
    def __init__(self, client: KubeClient, node: str, clock: Clock) -> None:
        self._client = client
        self._path = f"/api/v1/nodes/{node}"
        self._node = node
        self._clock = clock
        self._written: NodeState | None = None

    async def tell(self, state: NodeState) -> None:
        """Write the conditions of ``state``, unless this process wrote them last.

        Raises ``Refused`` (``NodeUnknown``) and what the client raises; the next call tries again.
        """
        if state == self._written:
            return
        try:
            node = await self._client.get(self._path)
        except NotFound:
            raise Refused(f"there is no Node {self._node} in the cluster", reason=Reason.NODE_UNKNOWN) from None
        try:
            now = seconds_time(self._client.server_clock.earliest(self._clock.monotonic()))
        except Uncertain:
            raise Retryable("the API server sends no time (no Date header)", reason=Reason.KUBE_NO_DATE) from None
        there = (node.get("status") or {}).get("conditions") or ()
        changed = differing(conditions(state), there, now)
        if changed:
            # A patch by type leaves the conditions alone that the kubelet writes at the same time.
            await self._client.patch_lists(f"{self._path}/status", {"status": {"conditions": changed}})
        self._written = state
