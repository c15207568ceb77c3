# SPDX-License-Identifier: Apache-2.0
"""An API server in memory with Leases and Nodes, and a client that reaches it without sockets: both count requests.

It has what the slots of a pool need: versions, preconditions of merge patches and of deletions, selectors by label.
And what a watch of one object needs: changes, bookmarks, an end at the requested time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

from nodeagent.core.coordination.kube_time import http_date
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.kube.errors import from_answer
from nodeagent.update.ports.host import Clock
from tests.kube.server import DATE

LEASES = "/apis/coordination.k8s.io/v1/namespaces/nodeagent/leases"
NODES = "/api/v1/nodes"
KINDS = ("leases", "nodes", "machineconfigpools", "nodemaintenances")
POOLS = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools"
BEGAN = http_date(DATE) or 0.0


# Seconds between two bookmarks of a watch.
BOOKMARKS = 60.0


def event(kind: str, item: Any) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def merged(item: Any, patch: Any) -> Any:
    """Return a merge patch (RFC 7396) on ``item``."""
    if not isinstance(patch, dict):
        return patch
    base = item if isinstance(item, dict) else {}
    kept = {key: value for key, value in base.items() if key not in patch}
    return {**kept, **{key: merged(base.get(key), value) for key, value in patch.items() if value is not None}}


@dataclass
class MemoryApi:
    """``objects`` by path. ``asked`` counts requests by verb and collection, ``by`` by the client."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    queries: list[str] = field(default_factory=list)
    versions: Any = field(default_factory=lambda: itertools.count(1))
    watchers: dict[str, list[asyncio.Queue[bytes]]] = field(default_factory=dict)

    def add(self, collection: str, name: str, **more: Any) -> None:
        version = str(next(self.versions))
        meta = {"name": name, "uid": f"uid-of-{name}-{version}", "resourceVersion": version, **more.pop("metadata", {})}
        self._keep("ADDED", f"{collection}/{name}", {"metadata": meta, **more})

    def _keep(self, kind: str, path: str, item: dict[str, Any]) -> None:
        self.objects[path] = item
        for queue in self.watchers.get(path, ()):
            queue.put_nowait(event(kind, item))

    async def watch(self, target: str) -> AsyncGenerator[bytes]:
        path, _, text = target.partition("?")
        self.asked[f"WATCH {path.rpartition('/')[2]}"] += 1
        query = {key: values[0] for key, values in parse_qs(text).items()}
        path += "/" + query["fieldSelector"].removeprefix("metadata.name=")
        queue = asyncio.Queue[bytes]()
        self.watchers.setdefault(path, []).append(queue)
        there = self.objects.get(path)
        if there is not None and int(there["metadata"]["resourceVersion"]) > int(query["resourceVersion"]):
            queue.put_nowait(event("MODIFIED", there))
        loop = asyncio.get_running_loop()
        end = loop.time() + float(query["timeoutSeconds"])
        try:
            # A loop of virtual time has a resolution, by which it may never get to the end.
            while (left := end - loop.time()) > 0.001:
                try:
                    async with asyncio.timeout(min(BOOKMARKS, left)):
                        line = await queue.get()
                except TimeoutError:
                    line = event("BOOKMARK", {"metadata": {"resourceVersion": str(next(self.versions))}})
                yield line
        finally:
            self.watchers[path].remove(queue)

    def answer(self, method: str, target: str, body: Any) -> tuple[int, dict[str, Any]]:
        path, _, query = target.partition("?")
        collection = path if path.endswith(tuple(f"/{kind}" for kind in KINDS)) else path.rpartition("/")[0]
        listed = method == "GET" and path == collection
        self.asked[f"{'LIST' if listed else method} {collection.rpartition('/')[2]}"] += 1
        if listed:
            self.queries.append(query)
            return 200, {"metadata": {}, "items": self._selected(collection, query)}
        if method == "POST":
            return self._created(f"{path}/{body['metadata']['name']}", body)
        found = self.objects.get(path)
        if found is None:
            return 404, {"reason": "NotFound", "message": f"{path} not found"}
        if method == "GET":
            return 200, found
        wanted = (body.get("metadata") or {}) if method == "PATCH" else body["preconditions"]
        for key in ("uid", "resourceVersion"):
            if wanted.get(key, found["metadata"][key]) != found["metadata"][key]:
                return 409, {"reason": "Conflict", "message": "the object has been modified"}
        if method == "DELETE":
            for queue in self.watchers.get(path, ()):
                queue.put_nowait(event("DELETED", found))
            return 200, self.objects.pop(path)
        changed = merged(found, body)
        changed["metadata"]["resourceVersion"] = str(next(self.versions))
        self._keep("MODIFIED", path, changed)
        return 200, changed

    def _created(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path in self.objects:
            return 409, {"reason": "AlreadyExists", "message": f"{path} exists"}
        version = str(next(self.versions))
        made = {**body, "metadata": {**body["metadata"], "uid": f"u{version}", "resourceVersion": version}}
        self._keep("ADDED", path, made)
        return 201, made

    def _selected(self, collection: str, query: str) -> list[dict[str, Any]]:
        terms = parse_qs(unquote(query)).get("labelSelector", [""])[0]
        wanted = dict(term.split("=", 1) for term in terms.split(",") if term)
        return [
            found
            for path, found in self.objects.items()
            if path.rpartition("/")[0] == collection
            and wanted.items() <= (found["metadata"].get("labels") or {}).items()
        ]


class MemoryClient(KubeClient):
    """``now`` returns the seconds that have passed, which is the time of the server."""

    def __init__(self, api: MemoryApi, clock: Clock, now: Callable[[], float]) -> None:
        super().__init__(ClusterAccess("/dev/null"), clock)
        self._api = api
        self._seconds = now

    async def _once(
        self, method: str, url: str, body: Any, kind: str, accept: str, read: Callable[[bytes], Any], timeout: float
    ) -> Any:
        self.requests += 1
        now = self._clock.monotonic()
        self.server_clock = self.server_clock.updated(float(int(BEGAN + self._seconds())), now, now)
        status, answer = self._api.answer(method, url, body)
        if status >= 300:
            raise from_answer(status, answer, f"{method} {url}")  # type: ignore[arg-type]
        return read(json.dumps(answer).encode())

    async def parts(self, url: str, accept: str, seconds: float) -> AsyncGenerator[bytes]:
        self.requests += 1
        async for part in self._api.watch(url):
            yield part
