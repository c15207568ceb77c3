"""Follows one object by reading it again and again.

A watch would tell sooner, and costs a connection per node, a list after every break and a loop that can spin; what we
follow (our Node, our config) may be noticed half a minute late. One quorum read per ``every`` seconds, spread by jitter
so that a fleet does not ask in step; after a fault, pauses that grow, and the same object is given again only if that
is asked for.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from typing import Final

from nodeagent.core.backoff import delays, jittered
from nodeagent.errors import AgentError
from nodeagent.kube.client import KubeClient, Object
from nodeagent.kube.errors import NotFound

__all__ = ["follow"]

EVERY: Final = 30.0
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 300.0


async def follow(
    client: KubeClient,
    path: str,
    *,
    every: float = EVERY,
    first_pause: float = FIRST_PAUSE,
    again: Callable[[], bool] = lambda: False,
    trouble: Callable[[AgentError | None], None] = lambda _: None,
) -> AsyncGenerator[Object | None, None]:
    """The object now, and again whenever it has changed or ``again`` says so; None while there is none. Never ends by
    itself: every fault is given to ``trouble`` and tried again, also one that a person has to cure, and None when it
    is over."""
    given: str | None = None
    pauses = delays(first_pause, LONGEST_PAUSE)
    ill = False
    while True:
        found: Object | None
        try:
            found = await client.get(path)
        except NotFound:
            found = None
        except AgentError as fault:
            ill = True
            trouble(fault)
            await asyncio.sleep(jittered(next(pauses), random.random()))  # noqa: S311
            continue
        if ill:
            ill, pauses = False, delays(first_pause, LONGEST_PAUSE)
            trouble(None)
        meta = (found or {}).get("metadata") or {}
        version = f"{meta.get('uid')}/{meta.get('resourceVersion')}"
        if version != given or again():
            given = version
            yield found
        await asyncio.sleep(jittered(every, random.random()))  # noqa: S311
