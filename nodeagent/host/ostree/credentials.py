# SPDX-License-Identifier: Apache-2.0
"""The pull secret at the path where ostree-ext reads it: /run/ostree/auth.json, for the duration of a pull.

A file of another owner at that path is kept and used; /etc/ostree/auth.json is never touched (the one in /run is
preferred). The agent's own file has a second name, a hard link to the same inode, so another file is never mistaken for
it, and a restarted agent finds and removes the secret of its earlier run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from nodeagent.host.fs.os_errors import translated


class Credentials:
    """Provides the pull secret to ostree-ext."""

    def __init__(self, root: Path) -> None:
        self._path = root / "run/ostree/auth.json"
        self._ours = root / "run/ostree/.nodeagent-auth.json"

    @asynccontextmanager
    async def provided(self, text: bytes | None) -> AsyncIterator[None]:
        """Provide the pull secret inside the context. With None, the host's own is used."""
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
                # Unlike a rename, a link replaces no file.
                os.link(self._ours, self._path)
            except FileExistsError:
                self._ours.unlink()

    def sweep(self) -> None:
        """Remove the agent's own file, also that of an earlier run."""
        with translated("remove the pull secret at", str(self._path)):
            try:
                ours = self._ours.lstat()
            except FileNotFoundError:
                return
            with suppress(FileNotFoundError):
                if os.path.samestat(self._path.lstat(), ours):
                    self._path.unlink()
            self._ours.unlink()
