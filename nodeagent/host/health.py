"""Health checks that domains declare: an HTTP answer on loopback, or a socket that accepts connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from nodeagent.core.plan.domain import Health, HttpHealth, SocketHealth

__all__ = ["HostHealth"]

DEADLINE = 3.0
"""Seconds for one check. A slower healthz counts as unhealthy."""


class HostHealth:
    """Implements ``ports.HealthChecks``. ``declared`` returns the checks of a unit."""

    def __init__(self, declared: Callable[[str], Sequence[Health]]) -> None:
        self._declared = declared

    async def check(self, unit: str) -> str | None:
        checks = self._declared(unit)
        if not checks:
            return None
        answers = [await self._one(check) for check in checks]
        return "; ".join(answer for answer in answers if answer)

    async def _one(self, check: Health) -> str:
        try:
            async with asyncio.timeout(DEADLINE):
                match check:
                    case HttpHealth():
                        return await _http(check.url)
                    case SocketHealth():
                        return await _socket(check.path)
        except TimeoutError:
            return f"no answer within {DEADLINE:.0f} s"


async def _http(url: str) -> str:
    parts = urlsplit(url)
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    except OSError as error:
        return f"{url}: {_why(error)}"
    try:
        request = f"GET {parts.path or '/'} HTTP/1.0\r\nHost: {parts.hostname}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        await writer.drain()
        words = (await reader.readline()).split(maxsplit=2)
    except OSError as error:
        return f"{url}: {_why(error)}"
    finally:
        await _close(writer)
    if len(words) < 2 or not words[0].startswith(b"HTTP/"):
        return f"{url} does not speak HTTP"
    return "" if words[1] == b"200" else f"{url} answers {words[1].decode('ascii', 'replace')[:3]}"


async def _socket(path: str) -> str:
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        return f"{path}: {_why(error)}"
    await _close(writer)
    return ""


def _why(error: OSError) -> str:
    # asyncio replaces strerror by its own sentence.
    return os.strerror(error.errno) if error.errno else str(error)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
