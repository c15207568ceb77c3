"""Make the links of enabled units durable: systemd does not sync them.

The store, which may be on another file system, records that an update is done. Without a sync, a power cut after that
could lose the links, and the update would not be repeated.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.host.fs.os_errors import translated

# Directories of links that enable a unit: systemd.unit(5).
_SUFFIXES = (".wants", ".requires", ".upholds")


async def sync_links(unit: str, answer: Sequence[Any]) -> None:
    """Sync what a call such as ``EnableUnitFiles`` has changed: its answer ends with (type, path, target) of each link.

    Raises ``AgentError`` if the file system fails.
    """
    changed = [Path(path) for _, path, _ in (answer[-1] if answer else ()) if path.startswith("/")]
    await asyncio.to_thread(_sync, unit, changed)


def _sync(unit: str, changed: Sequence[Path]) -> None:
    top = Path(UNIT_DIR)
    # A repeated call changes nothing, and the call before it may have ended with a kill before the sync.
    there = [path for path in top.glob("*.*") if path.suffix in _SUFFIXES and (path / unit).is_symlink()]
    for directory in sorted({top, *there, *(path.parent for path in changed)}):
        with translated("sync", str(directory)):
            try:
                fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                # It was removed with its last link.
                continue
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
