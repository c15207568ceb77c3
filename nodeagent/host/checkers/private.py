"""A private directory for copies of files that may hold secrets."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

__all__ = ["private_directory"]

# Directories in memory, in order of preference. The files that are checked may be secret and must not reach a disk.
TMPFS: Final = (Path("/run/nodeagent"), Path("/run"), Path("/dev/shm"))  # noqa: S108 - mkdtemp makes a private one


@asynccontextmanager
async def private_directory() -> AsyncIterator[Path]:
    """Make a directory that only this user can read, in memory if possible, and remove it afterwards."""

    def make() -> Path:
        for place in TMPFS:
            try:
                return Path(tempfile.mkdtemp(prefix="nodeagent-check-", dir=place))
            except OSError:
                continue
        return Path(tempfile.mkdtemp(prefix="nodeagent-check-"))

    directory = await asyncio.to_thread(make)
    try:
        yield directory
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
