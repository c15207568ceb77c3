"""Answers of etcd's gateway, and of another program at its address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nodeagent.host.etcd.client import EtcdClient, EtcdFault


@asynccontextmanager
async def gateway(answer: bytes) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"


async def test_the_move_of_a_leadership_is_answered_by_an_empty_object() -> None:
    async with gateway(b"{}") as url:
        await EtcdClient(None).move_leader(url, "2")


@pytest.mark.parametrize("answer", [b"", b"<html></html>", b"[]", b"null"])
async def test_an_answer_of_another_program_is_no_success(answer: bytes) -> None:
    async with gateway(answer) as url:
        with pytest.raises(EtcdFault, match="the answer is no JSON object"):
            await EtcdClient(None).move_leader(url, "2")
