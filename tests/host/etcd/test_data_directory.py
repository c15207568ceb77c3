# SPDX-License-Identifier: Apache-2.0
"""Whose data are in a data directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.core.etcd.data_directory import DataDirectory, Identity
from nodeagent.errors import Terminal
from nodeagent.host.etcd.data_directory import read_data_directory

IDS = (13668033151171901709, 15118495548433857066)


def varint(number: int) -> bytes:
    parts = []
    while True:
        number, low = number >> 7, number & 0x7F
        parts.append(low | (0x80 if number else 0))
        if not number:
            return bytes(parts)


def frame(record: bytes) -> bytes:
    padding = -len(record) % 8
    head = len(record) | ((0x80 | padding) << 56 if padding else 0)
    return head.to_bytes(8, "little") + record + bytes(padding)


def segment(member: int, cluster: int) -> bytes:
    ids = b"\x08" + varint(member) + b"\x10" + varint(cluster)
    metadata = b"\x08\x01\x10" + varint(0xDEADBEEF) + b"\x1a" + varint(len(ids)) + ids
    return frame(b"\x08\x04\x10\x00") + frame(metadata) + bytes(64)


def write(path: Path, content: bytes, name: str = "0000000000000000-0000000000000000.wal") -> None:
    (path / "member/wal").mkdir(parents=True, exist_ok=True)
    (path / "member/wal" / name).write_bytes(content)


def test_the_identity_of_the_log(tmp_path: Path) -> None:
    write(tmp_path, b"later", "0000000000000002-0000000000000007.wal")
    write(tmp_path, b"not yet", "0.tmp")
    write(tmp_path, segment(*IDS))
    assert read_data_directory(tmp_path) == DataDirectory(True, Identity(*map(str, IDS)))


def test_no_data(tmp_path: Path) -> None:
    assert read_data_directory(tmp_path / "none") == DataDirectory()
    (tmp_path / "lost+found").mkdir()
    assert read_data_directory(tmp_path) == DataDirectory()
    (tmp_path / "member").mkdir()
    assert read_data_directory(tmp_path) == DataDirectory()


@pytest.mark.parametrize("cut", [0, 7, 12, 17, 30, 40])
def test_a_log_that_is_damaged_has_no_identity(tmp_path: Path, cut: int) -> None:
    write(tmp_path, segment(*IDS)[:cut])
    assert read_data_directory(tmp_path) == DataDirectory(True)
    write(tmp_path, b"\xff" * 200)
    assert read_data_directory(tmp_path) == DataDirectory(True)


def test_a_data_directory_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "member").write_text("")
    with pytest.raises(Terminal) as raised:
        read_data_directory(tmp_path)
    assert raised.value.reason == "NotADirectory"
