# SPDX-License-Identifier: Apache-2.0
"""The original values of everything that the fence changes, kept until they are restored, also across a kill.

The log is in /run. The fence changes only what a reboot resets (the queue of a disk, run-time properties of a unit), so
entries of an earlier boot must not be followed. Besides, this does not write to the disk that the fence protects.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from nodeagent.host.fs.atomic import is_temp, put_file
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.fs.read_inside import read_regular

# The next version restores what this one left, so the name is a contract.
_SUFFIX = ".undo"

# Bytes of an entry, which has some hundred.
_MAX_BYTES = 1 << 20


class RestoreLog:
    """Small texts by key (letters, digits, ``-:.@_``), which survive the process, but not the boot.

    One file for each key, in a directory below /run that is created. Errors are those of ``os_errors``.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def load(self) -> Mapping[str, str]:
        return await asyncio.to_thread(self._load)

    async def save(self, key: str, note: str) -> None:
        """Replace the entry. When this returns, a kill cannot lose it."""
        await asyncio.to_thread(self._save, key, note)

    async def clear(self, key: str) -> None:
        """Remove the entry, if there is one."""
        await asyncio.to_thread(self._clear, key)

    def _load(self) -> dict[str, str]:
        with translated("read the restore log in", str(self._directory)):
            if not self._directory.exists():
                return {}
            files = [path for path in self._directory.iterdir() if path.suffix == _SUFFIX and not is_temp(path.name)]
            # Whatever an entry holds, the others are still to be restored.
            texts = {path: read_regular(path, _MAX_BYTES).decode(errors="replace") for path in sorted(files)}
            return {path.name.removesuffix(_SUFFIX): text for path, text in texts.items()}

    def _save(self, key: str, note: str) -> None:
        with translated("write the restore log in", str(self._directory)):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                put_file(
                    fd, key + _SUFFIX, note.encode(), mode=0o600, uid=os.geteuid(), gid=os.getegid(), label=_no_label
                )
            finally:
                os.close(fd)

    def _clear(self, key: str) -> None:
        with translated("remove an entry of the restore log in", str(self._directory)):
            (self._directory / (key + _SUFFIX)).unlink(missing_ok=True)


def _no_label(_fd: int, _mode: int) -> None:
    """Keep the label of the directory: only the agent reads these files."""
