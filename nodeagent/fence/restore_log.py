"""What was found before the fence changed it, kept until it is put back: also when the agent is killed in between.

Kept in /run: what the fence changes (the queue of a disk, run-time properties of a unit) is forgotten at a reboot, and
so are the notes on it, which another boot must not follow. It is also no write to the disk that the fence protects.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from nodeagent.host.fs.atomic import is_temp, put_file
from nodeagent.host.fs.os_errors import translated

__all__ = ["FileUndo", "Undo"]

_SUFFIX = ".undo"


class Undo(Protocol):
    """Small notes by key (letters, digits, ``-:.@_``). All of them outlive the process, none the boot."""

    async def load(self) -> Mapping[str, str]: ...

    async def save(self, key: str, note: str) -> None:
        """In the place of an older one. When this returns, a kill cannot lose it."""
        ...

    async def clear(self, key: str) -> None:
        """Nothing happens if there is none."""
        ...


class FileUndo:
    """One file for each key in a directory below /run, which is made. All errors are those of ``faults``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def load(self) -> Mapping[str, str]:
        return await asyncio.to_thread(self._load)

    async def save(self, key: str, note: str) -> None:
        await asyncio.to_thread(self._save, key, note)

    async def clear(self, key: str) -> None:
        await asyncio.to_thread(self._clear, key)

    def _load(self) -> dict[str, str]:
        with translated("read the notes in", str(self._directory)):
            if not self._directory.exists():
                return {}
            files = [path for path in self._directory.iterdir() if path.suffix == _SUFFIX and not is_temp(path.name)]
            return {path.name.removesuffix(_SUFFIX): path.read_text() for path in sorted(files)}

    def _save(self, key: str, note: str) -> None:
        with translated("write a note to", str(self._directory)):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                put_file(
                    fd, key + _SUFFIX, note.encode(), mode=0o600, uid=os.geteuid(), gid=os.getegid(), label=_no_label
                )
            finally:
                os.close(fd)

    def _clear(self, key: str) -> None:
        with translated("remove a note from", str(self._directory)):
            (self._directory / (key + _SUFFIX)).unlink(missing_ok=True)


def _no_label(_fd: int, _mode: int) -> None:
    """What the directory gives it: nobody but us reads it."""
