# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nodeagent.core.plan.domain import Health, HttpHealth, MemberHealth, PluginHealth, SocketHealth
from nodeagent.host import health
from nodeagent.host.health import HostHealth

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answering(data: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(data)
        writer.close()

    return serve


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[str]:
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/healthz"


async def look(*checks: Health) -> str | None:
    async def declared(_unit: str) -> Sequence[Health]:
        return checks

    return await HostHealth(declared).check("x.service")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nok", ""),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "answers 503"),
        (b"SSH-2.0-OpenSSH\r\n", "does not speak HTTP"),
        (b"", "does not speak HTTP"),
    ],
)
async def test_http(data: bytes, says: str) -> None:
    async with server(answering(data)) as url:
        answer = await look(HttpHealth("x.service", url))
    assert answer is not None
    assert (says in answer) if says else answer == ""


async def test_silence_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "DEADLINE", 0.1)
    async with server(silent) as url:
        assert "no answer" in (await look(HttpHealth("x.service", url)) or "")


async def test_without_a_listener(tmp_path: Path) -> None:
    assert "refused" in (await look(HttpHealth("x.service", "http://127.0.0.1:1/healthz")) or "").lower()
    assert "No such file" in (await look(SocketHealth("x.service", str(tmp_path / "none"))) or "")


async def test_a_socket_that_accepts(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with await asyncio.start_unix_server(silent, path):
        assert await look(SocketHealth("x.service", str(path))) == ""


async def test_an_unknown_unit_is_neither_healthy_nor_failed() -> None:
    assert await look() is None


@pytest.mark.parametrize(
    ("script", "problem", "lasting"),
    [
        ("echo io.containerd.grpc.v1 cri linux/amd64 ok", "", False),
        ("echo io.containerd.grpc.v1 cri linux/amd64 error", "is in the state error", True),
        ("echo io.containerd.gc.v1 scheduler - ok", "none of the plugins", True),
        # containerd may still be starting.
        ("exit 1", "status 1", False),
        ("exec sleep 9", "no answer", False),
    ],
)
async def test_the_problem_of_a_plugin_stays_until_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, problem: str, lasting: bool
) -> None:
    (tmp_path / "ctr").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "ctr").chmod(0o755)
    monkeypatch.setattr(health, "SEARCH_PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(health, "DEADLINE", 0.5)
    plugins = PluginHealth("containerd.service", ("io.containerd.grpc.v1.cri",))

    async def declared(_unit: str) -> Sequence[Health]:
        return (plugins, SocketHealth("containerd.service", str(tmp_path / "missing.sock")))

    checks = HostHealth(declared)
    assert problem in (await checks.check("containerd.service") or "")
    assert await checks.lasting("containerd.service") is lasting


async def test_without_the_program_of_containerd_only_its_socket_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "SEARCH_PATH", str(tmp_path))
    assert await look(PluginHealth("x.service", ("io.containerd.grpc.v1.cri",))) == ""


async def test_a_member_of_etcd() -> None:
    async def declared(_: str) -> Sequence[Health]:
        return [MemberHealth("etcd.service")]

    async def trouble() -> str:
        return "one is a learner"

    assert await HostHealth(declared, member=trouble).check("etcd.service") == "one is a learner"
    assert await HostHealth(declared).check("etcd.service") == ""
