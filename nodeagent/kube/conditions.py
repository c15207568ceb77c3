"""Writes the node's conditions where they differ; their content is decided in ``core/report/conditions.py``."""

from __future__ import annotations

from nodeagent.core.coordination.kube_time import Uncertain, seconds_time
from nodeagent.core.report.conditions import NodeState, conditions, differing
from nodeagent.core.update.ports import Clock
from nodeagent.errors import Refused, Retryable
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import NotFound

__all__ = ["NodeConditions"]


class NodeConditions:
    def __init__(self, client: KubeClient, node: str, clock: Clock) -> None:
        self._client = client
        self._path = f"/api/v1/nodes/{node}"
        self._node = node
        self._clock = clock
        self._told: NodeState | None = None

    async def tell(self, state: NodeState) -> None:
        """Costs nothing if this process told the same before, one read if the node says so already. Raises ``Refused``
        (``NodeUnknown``) and what the client raises; the next call makes up for it."""
        if state == self._told:
            return
        try:
            node = await self._client.get(self._path)
        except NotFound:
            raise Refused(f"there is no Node {self._node} in the cluster", reason="NodeUnknown") from None
        try:
            now = seconds_time(self._client.server_clock.earliest(self._clock.monotonic()))
        except Uncertain:
            raise Retryable("the API server does not tell its time (no Date header)", reason="KubeNoDate") from None
        there = (node.get("status") or {}).get("conditions") or ()
        changed = differing(conditions(state), there, now)
        if changed:
            # By type, so the kubelet's conditions are not touched, whatever it writes meanwhile.
            await self._client.patch_lists(f"{self._path}/status", {"status": {"conditions": changed}})
        self._told = state
