# SPDX-License-Identifier: Apache-2.0
"""Kubernetes Events (``events.k8s.io/v1``) of the Node.

A repeated event becomes a series of one Event, written every few minutes at most. After a longer pause it is a new
Event. Events of a Node are in the namespace ``default``, as the API server demands for objects without a namespace.
"""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.core.coordination.kube_time import micro_time
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import NotFound
from nodeagent.report.node_events import NodeEvent

EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
CONTROLLER: Final = "nodeagent.org/agent"

# Seconds between two writes of one series.
WRITE_EVERY: Final = 300.0

# Seconds without the event after which it is a new Event: the API server keeps one for an hour.
FORGET_AFTER: Final = 3000.0

# Series that are remembered; a drain has a few.
KNOWN: Final = 200

# New Events in an hour. An update has ten; more than this from one node would be noise.
MOST: Final = 100

HOUR: Final = 3600.0
TOO_MANY: Final = NodeEvent("NoticesDropped", "Report", "too many events: run nodeagent status on the node", True)


@dataclass(slots=True)
class _Series:
    """Times on the steady clock."""

    name: str
    count: int
    seen: float
    written: float


class NodeEvents:
    """Writes events of one node; the name of the node is also the reporting instance."""

    def __init__(self, client: KubeClient, node: str) -> None:
        self._client = client
        self._node = node
        self._uid = ""
        self._series: dict[NodeEvent, _Series] = {}
        # Creation times on the steady clock.
        self._made: deque[float] = deque()

    async def write(self, notice: NodeEvent, at: float) -> None:
        """Write an event. ``at`` is its time on the steady clock, which may be in the past after an outage.

        Raises ``Refused`` (``NodeUnknown``) and what the client raises; the same event may be written again then.
        """
        series = self._series.get(notice)
        if series is None or at - series.seen > FORGET_AFTER:
            await self._new(notice, at)
            return
        if at - series.written < WRITE_EVERY:
            series.count, series.seen = series.count + 1, at
            return
        patch = {"count": series.count + 1, "lastObservedTime": micro_time(self._client.server_clock.earliest(at))}
        try:
            await self._client.patch(f"{EVENTS}/{series.name}", {"series": patch})
        except NotFound:
            # The API server has deleted it.
            await self._new(notice, at)
            return
        series.count, series.seen, series.written = series.count + 1, at, at

    async def _new(self, notice: NodeEvent, at: float) -> None:
        while self._made and at - self._made[0] > HOUR:
            self._made.popleft()
        if len(self._made) >= MOST:
            return
        # The last Event of the hour reports that others were dropped.
        if len(self._made) == MOST - 1:
            notice = TOO_MANY
        uid = await self._node_uid()
        # The form of client-go: the object, and a unique suffix.
        name = f"{self._node}.{secrets.token_hex(8)}"
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "eventTime": micro_time(self._client.server_clock.earliest(at)),
            "reportingController": CONTROLLER,
            "reportingInstance": self._node[:128],
            "type": "Warning" if notice.warning else "Normal",
            "reason": notice.reason,
            "action": notice.action,
            # The API allows 1024 bytes.
            "note": notice.note.encode()[:1000].decode(errors="ignore"),
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid},
        }
        await self._client.create(EVENTS, body)
        self._made.append(at)
        # Inserted at the end, so that the loop below forgets the oldest series first.
        self._series.pop(notice, None)
        self._series[notice] = _Series(name, 1, at, at)
        while len(self._series) > KNOWN:
            del self._series[next(iter(self._series))]

    async def _node_uid(self) -> str:
        if not self._uid:
            node = await self._client.node(self._node)
            self._uid = node["metadata"]["uid"]
        return self._uid
