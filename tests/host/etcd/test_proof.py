# SPDX-License-Identifier: Apache-2.0
"""The answers of the member on this host, by any of its addresses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nodeagent.errors import Unreachable
from nodeagent.host.etcd import proof
from nodeagent.host.etcd.detect import DetectedMember
from nodeagent.host.etcd.options import Options
from nodeagent.host.etcd.proof import MemberProof

ANSWERS = {
    "/v3/maintenance/status": {"header": {"member_id": "7"}, "leader": "7"},
    "/health": {"health": "true"},
    "/version": {"etcdserver": "3.6.8", "etcdcluster": "3.6.0"},
}


@asynccontextmanager
async def member(monkeypatch: pytest.MonkeyPatch, *, ready: int = 200) -> AsyncIterator[None]:
    """A member of etcd, of whose two addresses only the second one answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode().partition("?")[0]
        answer = json.dumps(ANSWERS.get(path, {})).encode()
        status = ready if path == "/readyz" else 200
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        urls = f"http://127.0.0.1:9,http://127.0.0.1:{port}"
        detected = DetectedMember(("a process",), Options({"name": "a", "listen-client-urls": urls}))
        monkeypatch.setattr(proof, "detect", lambda _: detected)
        yield


async def test_the_answers_of_the_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with member(monkeypatch):
        asked = MemberProof(tmp_path / "snapshot")
        assert (await asked.identity(), await asked.cluster_version()) == ("7", "3.6.0")


async def test_a_member_that_does_not_serve_is_in_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with member(monkeypatch, ready=503):
        assert (await MemberProof(tmp_path / "snapshot").trouble()).endswith("/readyz answers 503")


@pytest.mark.parametrize(
    ("detected", "problem"),
    [
        (None, "no member is on this host"),
        (DetectedMember(("a process",), Options({"listen-client-urls": "http://127.0.0.1:9"})), "127.0.0.1:9"),
    ],
)
async def test_without_a_member_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detected: DetectedMember | None, problem: str
) -> None:
    monkeypatch.setattr(proof, "detect", lambda _: detected)
    asked = MemberProof(tmp_path / "snapshot")
    assert (await asked.identity(), await asked.cluster_version()) == ("", "")
    assert problem in await asked.trouble()
    with pytest.raises(Unreachable, match=problem):
        await asked.snapshot()
    assert not (tmp_path / "snapshot").exists()
