# SPDX-License-Identifier: Apache-2.0
"""A server of images on loopback that can fail in each way that a transfer can."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from nodeagent.features.extension_images.decide import Image

CONTENT = bytes(range(256)) * 4096
DIGEST = f"sha256-{hashlib.sha256(CONTENT).hexdigest()}"

# What is sent for the head of a request, part by part; None ends the connection.
Answer = Callable[[str], list[bytes]]


def whole(content: bytes = CONTENT, head: str = "") -> Answer:
    return lambda _: [f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\n{head}\r\n".encode(), content]


def cut(after: int) -> Answer:
    """Send a part, and end the connection."""
    return lambda _: [f"HTTP/1.1 200 OK\r\nContent-Length: {len(CONTENT)}\r\n\r\n".encode(), CONTENT[:after]]


def rest(content: bytes = CONTENT) -> Answer:
    """Obey a range."""

    def answer(head: str) -> list[bytes]:
        wanted = [line for line in head.splitlines() if line.lower().startswith("range: bytes=")]
        if not wanted:
            return whole(content)(head)
        begin = int(wanted[0].partition("=")[2].rstrip("-"))
        about = f"Content-Range: bytes {begin}-{len(content) - 1}/{len(content)}\r\n"
        length = len(content) - begin
        return [f"HTTP/1.1 206 X\r\n{about}Content-Length: {length}\r\n\r\n".encode(), content[begin:]]

    return answer


def status(code: int, head: str = "") -> Answer:
    return lambda _: [f"HTTP/1.1 {code} X\r\nContent-Length: 2\r\n{head}\r\nno".encode()]


@dataclass
class Server:
    """``answers`` are those to the next requests; the last one is repeated. ``heads`` are those of the requests."""

    answers: list[Answer]
    port: int = 0
    heads: list[str] = field(default_factory=list)
    endless: bool = False
    silent: bool = False

    def url(self, path: str = "/x.raw") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def image(self, path: str = "/var/lib/extensions/x.raw", digest: str = DIGEST) -> Image:
        return Image(path, digest, self.url())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            for part in answer(head):
                writer.write(part)
                await writer.drain()
            while self.endless:
                writer.write(bytes(65536))
                await writer.drain()
            if self.silent:
                await reader.read()


@asynccontextmanager
async def serving(*answers: Answer, endless: bool = False, silent: bool = False) -> AsyncIterator[Server]:
    made = Server(list(answers), endless=endless, silent=silent)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(made.serve(reader, writer))
        tasks.add(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)
