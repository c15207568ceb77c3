"""Follows one object by polling it.

A watch would be faster, and costs a connection per node, a list after each break and a loop that can spin. The objects
that are followed (the Node, its config) may be noticed half a minute late. There is one quorum read per ``every``
seconds, with jitter so that the hosts of a fleet spread; pauses grow after a fault.
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
    on_error: Callable[[AgentError | None], None] = lambda _: None,
) -> AsyncGenerator[Object | None, None]:
    """Yield the object now, and whenever it has changed or ``again`` returns True; None while it does not exist.

    Does not end: each fault is given to ``on_error`` and retried, and None when it is over.
    """
    given: str | None = None
    pauses = delays(first_pause, LONGEST_PAUSE)
    failing = False
    while True:
        found: Object | None
        try:
            found = await client.get(path)
        except NotFound:
            found = None
        except AgentError as fault:
            failing = True
            on_error(fault)
            await asyncio.sleep(jittered(next(pauses), random.random()))  # noqa: S311
            continue
        if failing:
            failing, pauses = False, delays(first_pause, LONGEST_PAUSE)
            on_error(None)
        meta = (found or {}).get("metadata") or {}
        version = f"{meta.get('uid')}/{meta.get('resourceVersion')}"
        if version != given or again():
            given = version
            yield found
        await asyncio.sleep(jittered(every, random.random()))  # noqa: S311
