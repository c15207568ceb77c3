# SPDX-License-Identifier: Apache-2.0
"""When the Node of this host changes: from a watch, where the API server offers one that lasts.

A watch ends regularly after some minutes and continues at its position. After every other end the Node is read again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from enum import Enum, auto
from typing import Final

from nodeagent.core.backoff import delays
from nodeagent.core.coordination.kube_objects import ObjectMeta
from nodeagent.errors import AgentError, Refused, Terminal
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Gone
from nodeagent.kube.watch import ANY, SILENT, Silent, WatchedChange, changes

NODES: Final = "/api/v1/nodes"

# Seconds that one watch is requested to last.
SHORTEST: Final = 300
LONGEST: Final = 600
# The part of these seconds after which an end is regular.
REGULAR: Final = 0.9
# Seconds; so many watches in a row that end earlier are refused by something on the way, such as a proxy with a limit.
BRIEF: Final = 60.0
BRIEF_ONES: Final = 3
# Seconds until a watch is requested again that was refused.
REFUSED_FIRST_PAUSE: Final = 300.0
REFUSED_LONGEST_PAUSE: Final = 3600.0


class WatchEnd(Enum):
    """What follows a watch: a read at once, a read after a pause that spreads the agents of a fleet, or polling."""

    READ = auto()
    SPREAD = auto()
    POLL = auto()


class NodeWatch:
    def __init__(self, client: KubeClient, node: str, *, silent: float = SILENT) -> None:
        self._client = client
        self._node = node
        self._silent = silent
        # Loop time before which no watch is requested.
        self._refused_until = 0.0
        self._pauses = delays(REFUSED_FIRST_PAUSE, REFUSED_LONGEST_PAUSE)
        self._brief = 0
        # The server keeps less history than the time between two changes of the Node.
        self._too_old = False

    async def follow(self, version: str, take: Callable[[WatchedChange], Awaitable[bool]]) -> WatchEnd:
        """Call ``take`` with each change after ``version``, and return after the end of the watch.

        It ends if ``take`` returns False. Raises only what ``take`` raises.
        """
        loop = asyncio.get_running_loop()
        if loop.time() < self._refused_until:
            return WatchEnd.POLL
        position = ANY if self._too_old else version
        while True:
            began, fault = loop.time(), None
            seconds = random.randint(SHORTEST, LONGEST)  # noqa: S311 - spreads load, no secret
            watch = changes(self._client, NODES, self._node, since=position, seconds=seconds, silent=self._silent)
            async with aclosing(watch):
                while True:
                    try:
                        change = await anext(watch, None)
                    except AgentError as error:
                        fault = error
                        break
                    if change is None:
                        break
                    position = change.position
                    if change.item is not None and not await take(change):
                        return WatchEnd.POLL
            end = self._judge(fault, loop.time() - began, seconds, position == version)
            if end is not None:
                return end

    def _judge(self, fault: AgentError | None, lasted: float, seconds: int, of_read: bool) -> WatchEnd | None:
        """Return None if the watch is to be continued at its position. ``of_read``: that is the version of a read."""
        if isinstance(fault, Silent):
            return WatchEnd.READ
        if isinstance(fault, Gone) and of_read and not self._too_old:
            self._too_old = True
            return WatchEnd.READ
        if isinstance(fault, Refused | Terminal):
            return self._refuse()
        if lasted >= BRIEF:
            self._brief, self._pauses = 0, delays(REFUSED_FIRST_PAUSE, REFUSED_LONGEST_PAUSE)
        else:
            self._brief += 1
        if lasted >= REGULAR * seconds and not isinstance(fault, Gone):
            return None
        return self._refuse() if self._brief >= BRIEF_ONES else WatchEnd.SPREAD

    def _refuse(self) -> WatchEnd:
        self._brief = 0
        self._refused_until = asyncio.get_running_loop().time() + next(self._pauses)
        return WatchEnd.POLL


def version_of(meta: ObjectMeta) -> str:
    """Return a text that differs for each write, also of a Node that was created again."""
    return f"{meta['uid']}/{meta['resourceVersion']}"


def is_older(version: str, than: str) -> bool:
    """Versions of one kind are in the order of their numbers. One that is no number counts as newer."""
    numbers = all(text.isascii() and text.isdigit() for text in (version, than))
    return numbers and int(version) < int(than)
