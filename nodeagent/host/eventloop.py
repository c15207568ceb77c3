"""The event loop of the daemon: a name server that does not answer neither holds up its end nor fills the journal.

``getaddrinfo`` of the C library cannot be canceled, and may take half a minute without a server. asyncio runs it in the
pool of threads that it waits for at the end; here each look-up has a thread of its own that is not waited for.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Any, Final

from nodeagent import log

__all__ = ["DaemonLoop"]

MAX_LOOKUPS: Final = 16
"""At once; more wait. The unit may have 128 threads."""


class DaemonLoop(asyncio.SelectorEventLoop):
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
        fault: Exception | None = None
        try:
            found = socket.getaddrinfo(host, port, **hints)
        except Exception as error:  # noqa: BLE001 - it is the caller's, in the loop
            fault = error
        with suppress(RuntimeError):  # the loop was closed
            self.call_soon_threadsafe(_settle, answer, found, fault)


def _settle(answer: asyncio.Future[Any], found: Any, fault: Exception | None) -> None:
    if answer.done():  # canceled
        return
    if fault is not None:
        answer.set_exception(fault)
    else:
        answer.set_result(found)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """aiohttp goes on with a look-up that its caller gave up; asyncio reports the failure of each as an error (since
    Python 3.14). The caller has reported its own."""
    error = context.get("exception")
    message = str(context.get("message", ""))
    if isinstance(error, OSError) and message.endswith("in shielded future"):
        log.get(__name__).debug(f"given up before it failed: {error}")
    else:
        loop.default_exception_handler(context)
