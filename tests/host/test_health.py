# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest

from nodeagent.core.plan.change import KeyChange
from nodeagent.core.plan.domain import Health, HttpHealth, MemberHealth, PluginHealth, ReloadProof, SocketHealth
from nodeagent.host import health
from nodeagent.host.health import HostHealth, reload_problem

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


@pytest.mark.parametrize(
    ("message", "level", "keys", "problem"),
    [
        ("accepted", "info", True, ""),
        ("refused: no", "error", True, "refused: no"),
        # Without a message, the running configuration is the proof.
        ("", "error", True, ""),
        ("", "info", True, "it still runs with the previous value of log_level"),
        ("", "info", False, None),
    ],
)
async def test_a_reload_is_proved_by_the_message_or_by_the_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, level: str, keys: bool, problem: str | None
) -> None:
    for name, text in (("journalctl", message), ("app", f'log_level = "{level}"')):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{text}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(health, "SEARCH_PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(health, "PATIENCE", 0.1)
    monkeypatch.setattr(health, "reload_problem", partial(reload_problem, program=str(tmp_path / "journalctl")))
    proof = ReloadProof("app.service", "accepted", "refused: ", running=("app",))

    async def declared(_: str) -> Sequence[Health]:
        return ()

    checks = HostHealth(declared, lambda unit: proof if unit == "app.service" else None)
    changed = [KeyChange("/etc/app.conf", "log_level", '"info"', '"error"', ())] if keys else []
    assert await checks.reload_problem("app.service", "2026-11-28T20:00:00Z", changed) == problem
    assert await checks.reload_problem("other.service", "2026-11-28T20:00:00Z", changed) == ""
    assert await checks.reload_problem("app.service", "soon", changed) == ""


async def test_what_is_kept_back_from_pods() -> None:
    async def declared(_: str) -> Sequence[Health]:
        return ()

    async def kept_back(keys: Sequence[KeyChange]) -> dict[str, Decimal]:
        return {"cpu": Decimal(len(keys))}

    keys = [KeyChange("/etc/app.conf", "a", "1", "2", ())]
    assert await HostHealth(declared, kept_back=kept_back).kept_back(keys) == {"cpu": Decimal(1)}
    assert await HostHealth(declared).kept_back(keys) == {}
