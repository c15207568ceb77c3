"""One HTTP request over a real socket: forms of an answer, and bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nodeagent.host import http
from nodeagent.host.http import HttpFault, request


@asynccontextmanager
async def answering(data: bytes) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.01)


async def test_an_answer_in_chunks() -> None:
    chunked = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{"a": 1\r\n1\r\n}\r\n0\r\n\r\n'
    async with answering(chunked) as url:
        answer = await request("GET", url, timeout=5)
    assert (answer.status, answer.json()) == (200, {"a": 1})


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"", b"\xff", b"[" * 200_000])
async def test_what_is_no_object_is_an_empty_one(body: bytes) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)) as url:
        assert (await request("GET", url, timeout=5)).json() == {}


@pytest.mark.parametrize("data", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"])
async def test_what_is_no_answer(data: bytes) -> None:
    async with answering(data) as url:
        with pytest.raises(HttpFault, match="cut off, or is no HTTP"):
            await request("GET", url, timeout=5)


async def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER", 1000)
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000) as url:
        with pytest.raises(HttpFault, match="larger than 1000 bytes"):
            await request("GET", url, timeout=5)


@pytest.mark.parametrize("url", ["ftp://a", "http://", "unix:///run/x", "http://root:secret@a/"])
async def test_what_is_no_address(url: str) -> None:
    with pytest.raises(HttpFault) as caught:
        await request("GET", url, timeout=5)
    assert "secret" not in str(caught.value)


async def test_a_port_that_is_none() -> None:
    with pytest.raises(HttpFault, match=r"[Pp]ort"):
        await request("GET", "http://127.0.0.1:99999/", timeout=5)
