"""Finds pods whose DaemonSet was deleted, so that a drain evicts them as ``kubectl drain --force`` does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from nodeagent.core.coordination.drain import daemon_set_of
from nodeagent.kube.client import KubeClient, Object
from nodeagent.kube.errors import NotFound

__all__ = ["DaemonSets"]

MOST: Final = 500
"""DaemonSets that are read in one drain; a node runs some dozens. The pods of further ones stay."""

TOGETHER: Final = 10  # requests in flight


class DaemonSets:
    """Reads each DaemonSet once. Use an instance for one drain."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._exists: dict[tuple[str, str], bool] = {}
        self._slots = asyncio.Semaphore(TOGETHER)

    async def orphans(self, pods: Sequence[Object]) -> frozenset[str]:
        """Return the uids of pods whose DaemonSet no longer exists. Raises what the client raises."""
        owners = {pod["metadata"]["uid"]: owner for pod in pods if (owner := daemon_set_of(pod)) is not None}
        unknown = sorted(set(owners.values()) - self._exists.keys())[: MOST - len(self._exists)]
        await asyncio.gather(*(self._read(*owner) for owner in unknown))
        return frozenset(uid for uid, owner in owners.items() if not self._exists.get(owner, True))

    async def _read(self, namespace: str, name: str) -> None:
        async with self._slots:
            try:
                await self._client.get(f"/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}")
            except NotFound:
                self._exists[namespace, name] = False
            else:
                self._exists[namespace, name] = True
