# SPDX-License-Identifier: Apache-2.0
"""The data directory of a member of etcd: read the identity of its data.

Each segment of the write-ahead log begins with a record of the checksum and one of the metadata, with the ids of the
member and of its cluster (etcd's ``wal.Create``; the format is that of 3.0 to 3.6). A frame is the length of its record
(little-endian, the low 56 bits), the record, and padding to eight bytes. A record is protobuf: 1 type, 2 checksum,
3 data. The type of metadata is 1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from nodeagent.core.etcd.data_directory import DataDirectory, Identity
from nodeagent.host.fs.os_errors import translated

MEMBER: Final = "member"
METADATA: Final = 1
# The two records at the start have less than a hundred bytes.
MAX_RECORD: Final = 4096


def read_data_directory(path: Path) -> DataDirectory:
    """Return the state of the directory. Blocks; raises ``Terminal`` or ``Retryable`` if it cannot be read."""
    with translated("read", str(path)):
        member = path / MEMBER
        try:
            entries = any(member.iterdir())
        except FileNotFoundError:
            return DataDirectory()
        return DataDirectory(present=entries, identity=_identity(member / "wal") if entries else None)


def _identity(wal: Path) -> Identity | None:
    try:
        segments = sorted(entry.name for entry in wal.iterdir() if entry.name.endswith(".wal"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    # Each segment has the metadata at its beginning, so the oldest one is as good as any.
    for name in segments[:1]:
        fd = os.open(wal / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            return _of_frames(file.read(2 * MAX_RECORD))
    return None


def _of_frames(data: bytes) -> Identity | None:
    try:
        at = 0
        # The checksum comes before the metadata.
        for _ in range(2):
            length = int.from_bytes(data[at : at + 8], "little") & (1 << 56) - 1
            if not 0 < length <= MAX_RECORD:
                return None
            fields = dict(_fields(data[at + 8 : at + 8 + length]))
            if fields.get(1) == METADATA and isinstance(metadata := fields.get(3), bytes):
                ids = dict(_fields(metadata))
                return Identity(str(int(ids[1])), str(int(ids[2])))
            at += 8 + length + -length % 8
    except (KeyError, ValueError, IndexError):
        pass
    return None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message with numbers and bytes only."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value, at = _varint(data, at)
        if key & 7 == 0:
            yield key >> 3, value
        elif key & 7 == 2:
            yield key >> 3, data[at : at + value]
            at += value
        else:
            raise ValueError("another type of field")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise ValueError("a number that does not end")
