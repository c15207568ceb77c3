# SPDX-License-Identifier: Apache-2.0
"""The visible part of a machine-config-controller for one Node: it says which config is
desired, and answers the wish for a drain. The test says when. And the store of the agent, as far as it takes part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from integration.cluster.api import Object
from integration.cluster.cluster import Cluster
from nodeagent.core.config.machineconfig import ConfigSource

MCO: Final = "machineconfiguration.openshift.io/"
CONFIGS: Final = "/apis/machineconfiguration.openshift.io/v1/machineconfigs"
LOOK: Final = 0.1


class Memory:
    """What the store keeps of the config that was fetched."""

    def __init__(self) -> None:
        self.source: ConfigSource | None = None

    async def fetched(self) -> ConfigSource | None:
        return self.source

    async def keep_fetched(self, source: ConfigSource | None) -> None:
        self.source = source


class Controller:
    """Of one node."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._admin = cluster.admin
        self._path = f"/api/v1/nodes/{node}"
        self._node = node
        self.drains = True  # whether it answers

    def make(self, name: str, *, spec: Object | None = None, path: str = CONFIGS, **files: str) -> None:
        """A MachineConfig; `files` by path below /etc."""
        group = path.split("/")[2]
        entries = [
            {"path": f"/etc/{key}", "mode": 420, "contents": {"source": f"data:,{text}"}} for key, text in files.items()
        ]
        ignition = {"ignition": {"version": "3.4.0"}, "storage": {"files": entries}}
        kind = {"apiVersion": f"{group}/v1", "kind": "MachineConfig", "metadata": {"name": name}}
        self._admin.create(path, {**kind, "spec": {"config": ignition, **(spec or {})}})

    def desire(self, name: str | None) -> None:
        self.annotate(desiredConfig=name)

    def annotate(self, **notes: str | None) -> None:
        changes = {MCO + key: value for key, value in notes.items()}
        self._admin.patch(self._path, {"metadata": {"annotations": changes}})

    def node(self) -> Object:
        return self._admin.get(self._path)

    def notes(self) -> dict[str, str]:
        found = self.node()["metadata"].get("annotations") or {}
        return {key.removeprefix(MCO): value for key, value in found.items() if key.startswith(MCO)}

    def look(self) -> None:
        """Once: cordons and evicts, or uncordons, if that is asked for, and says so."""
        notes = self.notes()
        wish, done = notes.get("desiredDrain", ""), notes.get("lastAppliedDrain", "")
        if not self.drains or wish == done:
            return
        cordon = wish.split("-")[0] == "drain"
        self._admin.patch(self._path, {"spec": {"unschedulable": cordon or None}})
        if cordon:
            self._evict()
        self.annotate(lastAppliedDrain=wish)

    def _evict(self) -> None:
        pods = self._admin.get("/api/v1/pods", fieldSelector=f"spec.nodeName={self._node}")["items"]
        for pod in pods:
            meta: dict[str, Any] = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": meta["name"]}}
            self._admin.create(path, body)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async def work() -> None:
            while True:
                await asyncio.to_thread(self.look)
                await asyncio.sleep(LOOK)

        task = asyncio.create_task(work())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
