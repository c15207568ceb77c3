"""The pull secret where rpm-ostree looks for one: /run/ostree/auth.json, for as long as a transaction takes.

Somebody else's file there is left alone, and then it is theirs that counts; /etc/ostree/auth.json is never touched (the
daemon prefers the one in /run). Which file is ours is known by its second name: both are one inode, so no look-alike is
taken for ours, and a killed agent's secret is found and removed at the next start.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nodeagent.host.fs.os_errors import translated

__all__ = ["Credentials"]


class Credentials:
    def __init__(self, root: Path) -> None:
        self._path = root / "run/ostree/auth.json"
        self._ours = root / "run/ostree/.nodeagent-auth.json"

    @asynccontextmanager
    async def provided(self, text: bytes | None) -> AsyncIterator[None]:
        """None: those of the host, whatever they are."""
        if text is None:
            yield
            return
        await asyncio.to_thread(self._put, text)
        try:
            yield
        finally:
            await asyncio.to_thread(self.sweep)

    def _put(self, text: bytes) -> None:
        with translated("provide the pull secret at", str(self._path)):
            self.sweep()
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            fd = os.open(self._ours, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(text)
            try:
                os.link(self._ours, self._path)  # unlike a rename it replaces nothing
            except FileExistsError:
                self._ours.unlink()

    def sweep(self) -> None:
        """Removes what is ours, also of an earlier life."""
        with translated("remove the pull secret at", str(self._path)):
            try:
                ours = self._ours.lstat()
            except FileNotFoundError:
                return
            try:
                there = self._path.lstat()
            except FileNotFoundError:
                there = None
            if there is not None and (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
                self._path.unlink()
            self._ours.unlink()
