# SPDX-License-Identifier: Apache-2.0
"""A disk that loses power: what a traced program wrote, and every state that a cut may leave of it.

The trace is strace's. A file's content is certain up to its last sync; of the writes after that, any part may be on
the disk: some and not others, in any order, and of each only some sectors. A new name is certain when its directory
was synced. This is what POSIX promises and what real disks do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SECTOR = 512
CALLS = "pwrite64,write,ftruncate,fdatasync,fsync,openat,unlink,unlinkat,rename,renameat,renameat2"

_HEX = r"((?:\\x[0-9a-f]{2})*)"
_OPEN = re.compile(rf'openat\(\S+ "{_HEX}", ([A-Z_|]+)(?:, \d+)?\) += \d+')
_CALL = re.compile(rf"(\w+)\((\d+)<{_HEX}>(?:, (.*))?\) += (\d+)")
_DATA = re.compile(rf'^"{_HEX}", \d+(?:, (\d+))?$')


@dataclass
class Disk:
    """``synced`` is certain content by path, ``pending`` what was done since; a path in ``unnamed`` may not exist."""

    synced: dict[str, bytes]
    pending: dict[str, list[tuple[int, bytes | None]]] = field(default_factory=dict)
    unnamed: set[str] = field(default_factory=set)

    def sync(self, path: str) -> None:
        content = bytearray(self.synced.get(path, b""))
        for at, data in self.pending.pop(path, ()):
            _apply(content, at, data)
        self.synced[path] = bytes(content)

    def cut(self, chance: Random) -> dict[str, bytes]:
        """One of the states that a power cut now may leave."""
        left: dict[str, bytes] = {}
        for path in {*self.synced, *self.pending}:
            if path in self.unnamed and chance.random() < 0.5:
                continue
            content = bytearray(self.synced.get(path, b""))
            pending = [one for one in self.pending.get(path, ()) if chance.random() < 0.6]
            chance.shuffle(pending)
            for at, data in pending:
                if data is None or chance.random() < 0.5:
                    _apply(content, at, data)
                    continue
                for start in range(0, len(data), SECTOR):
                    if chance.random() < 0.5:
                        _apply(content, at + start, data[start : start + SECTOR])
            left[path] = bytes(content)
        return left


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    """``data`` None cuts the file to ``at`` bytes (or stretches it)."""
    end = at if data is None else at + len(data)
    if end > len(content):
        content.extend(bytes(end - len(content)))
    if data is None:
        del content[at:]
    else:
        content[at:end] = data


def replay(trace: Path, below: Path, first: dict[str, bytes]) -> Iterator[tuple[Disk, int]]:
    """After each call of the trace: the disk, and the number that the program had last said on its output."""
    disk, printed = Disk(dict(first)), 0
    ours = "".join(f"\\x{byte:02x}" for byte in bytes(below))
    for line in trace.read_text().splitlines():
        if "= -1 " in line or not (ours in line or "write(1<" in line):
            continue
        if opened := _OPEN.search(line):
            path = _text(opened[1])
            if "O_CREAT" in opened[2] and path not in disk.synced:
                disk.synced[path] = b""
                disk.unnamed.add(path)
            continue
        match = _CALL.search(line)
        assert match is not None, f"not understood: {line[:300]}"
        call, fd, path, rest = match[1], match[2], _text(match[3]), match[4]
        if call in ("fsync", "fdatasync"):
            if path in disk.synced:
                disk.sync(path)
            else:
                disk.unnamed.clear()  # the directory
        elif call == "ftruncate":
            disk.pending.setdefault(path, []).append((int(rest), None))
        else:
            data = _DATA.match(rest)
            assert data is not None, f"not understood: {line[:300]}"
            content = _bytes(data[1])
            assert len(content) == int(match[5])
            if call == "write" and fd == "1":
                printed = int(content.split()[-1])
            else:
                assert call == "pwrite64", f"the model does not know {call}"
                disk.pending.setdefault(path, []).append((int(data[2]), content))
        yield disk, printed


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


def _text(escaped: str) -> str:
    return _bytes(escaped).decode()
