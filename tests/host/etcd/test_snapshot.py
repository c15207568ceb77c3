# SPDX-License-Identifier: Apache-2.0
"""A snapshot of etcd, streamed by a gateway that may be damaged, slow or another program."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nodeagent.errors import AgentError
from nodeagent.host.etcd import snapshot
from nodeagent.host.etcd.client import EtcdAccess, EtcdClient, EtcdFault
from nodeagent.host.etcd.snapshot import EtcdSnapshot, save_snapshot, snapshot_of

BODY = bytes(range(256)) * 400
WHOLE = BODY + hashlib.sha256(BODY).digest()


STATE = json.dumps({"header": {"member_id": "1"}, "version": "3.6.8", "leader": "1", "health": "true"})


def lines(data: bytes, size: int = 32768) -> list[bytes]:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    rest = len(data)
    out = []
    for piece in pieces:
        rest -= len(piece)
        result = {"remaining_bytes": str(rest), "blob": base64.b64encode(piece).decode(), "version": "3.6.8"}
        out.append(json.dumps({"result": result}).encode() + b"\n")
    return out


@asynccontextmanager
async def gateway(*parts: bytes, status: int = 200, hang: bool = False) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"POST"):
            await reader.readexactly(len(b"{}"))
        if b"/snapshot " not in head:
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(STATE)}\r\n\r\n{STATE}".encode())
            writer.close()
            return
        writer.write(f"HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for part in parts:
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if hang:
            await writer.drain()
            await reader.read()
        else:
            writer.write(b"0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"


async def save(path: Path, *parts: bytes, status: int = 200, max_bytes: int = 1 << 30) -> EtcdSnapshot:
    async with gateway(*parts, status=status) as url:
        return await save_snapshot(EtcdClient(None), url, path, max_bytes=max_bytes)


async def test_a_snapshot_is_saved_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "etcd.snapshot"
    path.write_text("the last one")
    path.chmod(0o644)
    saved = await save(path, *lines(WHOLE))
    assert saved == EtcdSnapshot(str(path), len(WHOLE), hashlib.sha256(BODY).hexdigest(), "3.6.8")
    assert path.read_bytes() == WHOLE
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


async def test_pieces_of_any_size(tmp_path: Path) -> None:
    for size in (1000, 7, len(WHOLE)):
        short = WHOLE if size > 7 else b"abc" + hashlib.sha256(b"abc").digest()
        assert (await save(tmp_path / "s", *lines(short, size))).size == len(short)


DAMAGED: list[tuple[list[bytes], int, str]] = [
    (lines(WHOLE)[:-1], 200, "EtcdSnapshotInvalid"),
    (lines(WHOLE[:-1] + b"x"), 200, "EtcdSnapshotInvalid"),
    (lines(WHOLE[-32:]), 200, "EtcdSnapshotInvalid"),
    ([], 200, "EtcdSnapshotInvalid"),
    ([b"<html>\n"], 200, "EtcdSnapshotInvalid"),
    ([b'{"result":{"blob":"not base64"}}\n'], 200, "EtcdSnapshotInvalid"),
    ([b'{"result":[]}\n'], 200, "EtcdSnapshotInvalid"),
    ([*lines(WHOLE)[:2], b'{"error":{"code":13,"message":"it failed"}}\n'], 200, "EtcdRejected"),
    ([b'{"code":14,"message":"no leader"}'], 503, "EtcdRejected"),
]


@pytest.mark.parametrize(("parts", "status", "reason"), DAMAGED)
async def test_a_damaged_snapshot_replaces_nothing(
    tmp_path: Path, parts: list[bytes], status: int, reason: str
) -> None:
    path = tmp_path / "etcd.snapshot"
    path.write_text("the last one")
    with pytest.raises(AgentError) as raised:
        await save(path, *parts, status=status)
    assert raised.value.reason == reason
    assert path.read_text() == "the last one"
    assert list(tmp_path.iterdir()) == [path]


async def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def reason_of(**options: int) -> str:
        with pytest.raises(AgentError) as raised:
            await save(tmp_path / "s", *lines(WHOLE), **options)
        return str(raised.value.reason)

    assert await reason_of(max_bytes=len(WHOLE) - 1) == "EtcdSnapshotInvalid"
    assert (await save(tmp_path / "s", *lines(WHOLE), max_bytes=len(WHOLE))).size == len(WHOLE)
    (tmp_path / "s").unlink()
    monkeypatch.setattr(snapshot, "MAX_LINE", 1000)
    assert await reason_of() == "EtcdSnapshotInvalid"
    monkeypatch.setattr(snapshot, "MAX_LINE", 8 << 20)
    monkeypatch.setattr(snapshot, "RESERVE", 1 << 60)
    assert await reason_of() == "NoSpace"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("missing", "reason"), [(0, ""), (1, "NoSpace")])
async def test_a_disk_with_as_much_room_as_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int, reason: str
) -> None:
    # The first piece names what follows it.
    needed = len(WHOLE) - 32768 + snapshot.RESERVE - missing

    class Filesystem:
        f_bavail, f_frsize = needed, 1

    monkeypatch.setattr(snapshot.os, "statvfs", lambda _: Filesystem)
    try:
        await save(tmp_path / "s", *lines(WHOLE))
    except AgentError as error:
        assert error.reason == reason
    else:
        assert not reason


@pytest.mark.parametrize(
    ("limits", "words"), [({"TIMEOUT": 0.3}, "no answer in"), ({"STALL": 0.3}, "the snapshot is cut off")]
)
async def test_a_stream_that_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, float], words: str
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(snapshot, name, value)
    async with gateway(*lines(WHOLE)[:1], hang=True) as url:
        with pytest.raises(AgentError) as raised:
            await save_snapshot(EtcdClient(None), url, tmp_path / "s")
    assert raised.value.reason == "EtcdUnreachable"
    assert words in raised.value.message
    assert list(tmp_path.iterdir()) == []


async def test_the_first_member_that_answers_gives_it(tmp_path: Path) -> None:
    path = tmp_path / "etcd.snapshot"
    async with gateway(status=503) as down, gateway(*lines(WHOLE), status=200) as up:
        saved = await snapshot_of(EtcdAccess((down, up)), path)
        assert (saved.path, saved.size, path.read_bytes()) == (str(path), len(WHOLE), WHOLE)
        with pytest.raises(EtcdFault) as raised:
            await snapshot_of(EtcdAccess((down, f"{down}/")), path)
    assert raised.value.message.count(down) == 2, "the fault of each member"
    assert path.read_bytes() == WHOLE


async def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(AgentError) as raised:
        await save(tmp_path / "none/s", *lines(WHOLE))
    assert raised.value.reason == "PathChanged"
