# SPDX-License-Identifier: Apache-2.0
"""An HTTP server that answers as a test says, byte by byte: real sockets, the library's real transport."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

DATE = "Sat, 21 Nov 2026 09:00:00 GMT"
HANG = object()
CUT = object()


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: Any


@dataclass
class Answer:
    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        data = self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()
        headers = {"Date": DATE, "Content-Length": str(len(data)), **self.headers}
        lines = [f"HTTP/1.1 {self.status} X", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode() + data


@dataclass
class Stream:
    """An answer in parts, each after some seconds. It ends as it should, or with ``cut`` in the middle of a part; with
    ``hang`` never."""

    parts: Sequence[tuple[float, bytes]]
    cut: bool = False
    hang: bool = False

    async def send(self, writer: asyncio.StreamWriter) -> None:
        headers = f"HTTP/1.1 200 X\r\nDate: {DATE}\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(headers.encode())
        for seconds, part in self.parts:
            await writer.drain()
            await asyncio.sleep(seconds)
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if not self.cut and not self.hang:
            writer.write(b"0\r\n\r\n")
        await writer.drain()


@dataclass
class Server:
    """``answer`` decides; HANG never answers, CUT closes the connection."""

    port: int
    requests: list[Request]
    answer: Callable[[Request], Any]


@asynccontextmanager
async def serving(*answers: Any) -> AsyncIterator[Server]:
    """Gives ``answers`` one after the other, the last one without end."""
    left = list(answers)
    writers: list[asyncio.StreamWriter] = []
    stop = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while line := await reader.readline():
            method, target, _ = line.decode().split(" ", 2)
            headers: dict[str, str] = {}
            while (header := (await reader.readline()).decode().strip()) != "":
                name, _, value = header.partition(": ")
                headers[name.lower()] = value
            text = await reader.readexactly(int(headers.get("content-length", "0")))
            request = Request(method, target, headers, json.loads(text) if text else None)
            state.requests.append(request)
            answer = state.answer(request)
            if answer is CUT:
                break
            if answer is HANG:
                await stop.wait()
                break
            if isinstance(answer, Stream):
                await answer.send(writer)
                if answer.hang:
                    await stop.wait()
                if answer.cut or answer.hang:
                    break
                continue
            writer.write(answer.encode())
            await writer.drain()
        writer.close()

    state = Server(0, [], lambda _: left.pop(0) if len(left) > 1 else left[0])
    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    state.port = listening.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        stop.set()
        listening.close()
        for writer in writers:
            writer.close()
        await asyncio.sleep(0)
