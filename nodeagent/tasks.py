# SPDX-License-Identifier: Apache-2.0
"""Work and pauses that an event may interrupt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")


@asynccontextmanager
async def running(work: Awaitable[T]) -> AsyncIterator[asyncio.Future[T]]:
    """Run ``work`` beside the block, and cancel it at the end of the block."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        # The clean-up of the task is over when the block has ended. gather takes its CancelledError.
        await asyncio.gather(task, return_exceptions=True)


async def finished_before(task: asyncio.Future[Any], event: asyncio.Event, *, timeout: float | None = None) -> bool:
    """Wait ``timeout`` seconds for ``task`` or ``event``, and return whether the task is done. It goes on if it is
    not."""
    async with running(event.wait()) as waiting:
        await asyncio.wait({task, waiting}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    return task.done()


async def pause(seconds: float | None, event: asyncio.Event) -> None:
    """Wait ``seconds``, or until ``event`` is set; None: as long as it takes."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
