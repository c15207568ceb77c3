"""Waits during which the lease may be lost: for inhibitors, and for the users who were warned of a shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from nodeagent.agent.coordination import LOST, Coordination
from nodeagent.errors import AgentError

__all__ = ["while_held"]

# Seconds between two checks, each of which is one request to the API server.
PERIOD: Final = 10.0


@asynccontextmanager
async def while_held(coordination: Coordination, operation: str, committed: asyncio.Event) -> AsyncIterator[None]:
    """Cancels the block if the lease is lost before ``committed`` is set, and raises ``Refused`` (``LeaseLost``) then.

    A lease that cannot be checked is not lost: the block checks it before it commits itself.
    """
    lost: AgentError | None = None
    block = asyncio.current_task()
    assert block is not None

    async def watch() -> None:
        nonlocal lost
        while not committed.is_set():
            await asyncio.sleep(PERIOD)
            try:
                await coordination.check_lease(operation, offline=True)
            except AgentError as error:
                if error.reason in LOST and not committed.is_set():
                    lost = error
                    block.cancel()
                    return

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        # A caller cancelled the task as well.
        if lost is None or block.uncancel() > 0:
            raise
        raise lost from None
    finally:
        watcher.cancel()
