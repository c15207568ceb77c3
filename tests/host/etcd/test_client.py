# SPDX-License-Identifier: Apache-2.0
"""Answers of etcd's gateway, and of another program at its address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest

from nodeagent.host.etcd.client import EtcdAccess, EtcdClient, EtcdFault, open_client
from nodeagent.host.etcd.options import Endpoints, Options


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


@pytest.mark.parametrize(
    ("where", "reads"),
    [
        (Endpoints(("http://127.0.0.1:2379",), ("http://10.0.0.2:2379",)), False),
        (Endpoints(("https://127.0.0.1:2379",)), True),
        (Endpoints(("http://127.0.0.1:2379",), ("https://10.0.0.2:2379",)), True),
    ],
)
def test_certificates_are_read_where_an_address_needs_them(tmp_path: Path, where: Endpoints, reads: bool) -> None:
    access = EtcdAccess(ca=str(tmp_path / "missing.crt"))
    with pytest.raises(EtcdFault, match=r"missing\.crt") if reads else nullcontext():
        open_client(Options({}), access, where)
