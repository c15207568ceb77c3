# SPDX-License-Identifier: Apache-2.0
"""The event loop of the daemon, for name servers that do not answer: they neither delay its end nor fill the journal.

Its blocking calls need no new thread, so that a host without free processes delays them and fails none.

``getaddrinfo`` of the C library cannot be cancelled and may take half a minute without a server. asyncio runs it in the
thread pool that it waits for at the end. Here each lookup has its own thread, which is not waited for.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from nodeagent import log

T = TypeVar("T")

# Concurrent lookups; others wait. The unit allows 128 tasks.
MAX_LOOKUPS: Final = 16


class _Threads(ThreadPoolExecutor):
    """The threads for blocking calls. If the host allows no further one, a call waits for those that exist."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="asyncio")
        # The first thread exists from the start.
        self.submit(int)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise


class DaemonLoop(asyncio.SelectorEventLoop):
    """An event loop whose lookups of names do not delay its end."""

    def __init__(self) -> None:
        super().__init__()
        self.set_default_executor(_Threads())
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS)
        self.set_exception_handler(_handle)

    async def getaddrinfo(self, host: Any, port: Any, **hints: int) -> Any:
        async with self._lookups:
            return await in_daemon_thread(self, "lookup", partial(socket.getaddrinfo, host, port, **hints))


def in_daemon_thread(loop: asyncio.AbstractEventLoop, name: str, work: Callable[[], T]) -> asyncio.Future[T]:
    """Run ``work`` in a thread of its own, for calls that cannot be interrupted.

    The default executor has few threads, which such calls would use up, and asyncio waits for them at the end.
    """
    answer: asyncio.Future[T] = loop.create_future()

    def settle(done: Callable[[], None]) -> None:
        # A caller that was cancelled does not wait any more.
        if not answer.done():
            done()

    def run() -> None:
        try:
            done = partial(answer.set_result, work())
        except Exception as error:  # noqa: BLE001 - passed on to the caller
            done = partial(answer.set_exception, error)
        # The loop was closed.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, done)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        answer.set_exception(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
    return answer


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log the failure of an abandoned lookup at debug level.

    aiohttp continues a lookup that its caller cancelled, and asyncio reports its failure as an error since Python 3.14.
    """
    error = context.get("exception")
    message = str(context.get("message", ""))
    if isinstance(error, OSError) and message.endswith("in shielded future"):
        log.get(__name__).debug(f"abandoned lookup failed: {error}")
    else:
        loop.default_exception_handler(context)
