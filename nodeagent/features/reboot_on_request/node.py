# SPDX-License-Identifier: Apache-2.0
"""The annotation of the Node that requests a reboot, and the one that answers it.

A value is one request: it is taken once, and a host whose store was lost finds the answer on the Node. Without the
annotation, a request that has not begun is taken back. Nothing waits for the API server but the request itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from nodeagent.core.backoff import jittered
from nodeagent.core.config.text import plain_json
from nodeagent.errors import AgentError
from nodeagent.features.reboot_on_request.decide import RequestSource
from nodeagent.features.reboot_on_request.requests import KeptRequests
from nodeagent.kube.errors import NotFound
from nodeagent.update.ports.host import Clock

# The value is an id or a time that the author chooses; another value is another request.
REQUEST: Final = "nodeagent.org/reboot"
# JSON: the value as ``request``, ``result`` (rebooted, or ended without a reboot), and the time.
ANSWER: Final = "nodeagent.org/reboot-answer"

# Characters of a value.
MAX_VALUE: Final = 100

# Seconds between two reads of the Node, from the cache of an API server.
EVERY: Final = 60.0


class NodeClient(Protocol):
    """The part of ``KubeClient`` that is used."""

    async def get(self, path: str, **query: str) -> Any: ...

    async def patch(self, path: str, body: Any) -> Any: ...


@dataclass(eq=False)
class NodeRequests:
    """``at_rest`` returns whether no update is under way: a request is answered when its reboot is verified.

    ``random`` is a number from 0 to 1 at each call.
    """

    client: NodeClient
    node: str
    requests: KeptRequests
    clock: Clock
    at_rest: Callable[[], bool]
    random: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self) -> None:
        """Read the Node, without end. Raises only what the store raises."""
        while True:
            await self.look()
            # The agents of a fleet do not read at one moment.
            await self.sleep(jittered(EVERY, self.random()))

    async def look(self) -> None:
        """Take the request of the Node or take it back, and answer the one that is over."""
        # From the cache of the API server, which may be a moment old: a request waits for a minute anyway.
        notes = await self._notes(resourceVersion="0")
        if notes is None:
            return
        if REQUEST not in notes:
            await self._take_back()
            return
        value = notes[REQUEST]
        if not is_value(value) or _answered(notes.get(ANSWER, "")) == value:
            return
        # Taken before it is answered, so that a kill in between makes no second reboot of one value.
        if self.requests.taken != value:
            await self.requests.request(RequestSource.NODE, "the Node", value, value=value)
        elif self.requests.pending() is None and self.at_rest():
            result = "ended without a reboot" if self.requests.ended_here else "rebooted"
            answer = json.dumps({"request": value, "result": result, "time": self.clock.now()})
            try:
                await self.client.patch(f"/api/v1/nodes/{self.node}", {"metadata": {"annotations": {ANSWER: answer}}})
            except AgentError:
                # The next look answers it.
                return

    async def _notes(self, **query: str) -> Mapping[str, Any] | None:
        """Return the annotations of the Node, None if they are not known."""
        try:
            node = await self.client.get(f"/api/v1/nodes/{self.node}", **query)
        # The Node may have been deleted, or the kubelet may not have registered it yet.
        except NotFound:
            return None
        except AgentError:
            # The feature of the cluster reports an API server that is away.
            return None
        return (node.get("metadata") or {}).get("annotations") or {}

    async def _take_back(self) -> None:
        # An update that has begun is cancelled by an operator.
        if not (request := self.requests.of_node) or not self.at_rest():
            return
        # The cache of another API server may not have the annotation yet.
        notes = await self._notes()
        if notes is not None and REQUEST not in notes:
            await self.requests.drop(request, f"the annotation {REQUEST} was removed")


def is_value(value: object) -> bool:
    """Return whether the value of the annotation is a request."""
    return isinstance(value, str) and 0 < len(value) <= MAX_VALUE and value.isprintable()


def _answered(text: object) -> str:
    """Return the request that an answer names, "" without one."""
    try:
        answer = plain_json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return ""
    request = answer.get("request") if isinstance(answer, dict) else None
    return request if isinstance(request, str) else ""
