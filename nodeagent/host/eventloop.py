"""The event loop of the daemon, for name servers that do not answer: they neither delay its end nor fill the journal.

``getaddrinfo`` of the C library cannot be cancelled and may take half a minute without a server. asyncio runs it in the
thread pool that it waits for at the end. Here each lookup has its own thread, which is not waited for.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Any, Final

from nodeagent import log

__all__ = ["DaemonLoop"]

# Concurrent lookups; others wait. The unit allows 128 tasks.
MAX_LOOKUPS: Final = 16


class DaemonLoop(asyncio.SelectorEventLoop):
    """An event loop whose lookups of names do not delay its end."""

    def __init__(self) -> None:
        super().__init__()
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS)
        self.set_exception_handler(_handle)

    async def getaddrinfo(self, host: Any, port: Any, **hints: int) -> Any:
        async with self._lookups:
            answer: asyncio.Future[Any] = self.create_future()
            thread = threading.Thread(target=self._look_up, args=(answer, host, port, hints), daemon=True)
            thread.start()
            return await answer

    def _look_up(self, answer: asyncio.Future[Any], host: Any, port: Any, hints: dict[str, int]) -> None:
        found: Any = None
        failure: Exception | None = None
        try:
            found = socket.getaddrinfo(host, port, **hints)
        except Exception as error:  # noqa: BLE001 - passed on to the caller
            failure = error
        # The loop was closed.
        with suppress(RuntimeError):
            self.call_soon_threadsafe(_settle, answer, found, failure)


def _settle(answer: asyncio.Future[Any], found: Any, failure: Exception | None) -> None:
    # The caller was cancelled and does not wait any more.
    if answer.done():
        return
    if failure is not None:
        answer.set_exception(failure)
    else:
        answer.set_result(found)


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
