# SPDX-License-Identifier: Apache-2.0
"""Report which of many paths changed, with a bounded number of inotify watches.

Each directory above a path is watched for the next component of the path, so that a directory that is renamed, replaced
or created later is noticed too. Files are never watched: an atomic write replaces them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from nodeagent.errors import Retryable
from nodeagent.features.drift.reasons import DriftReason
from nodeagent.host.inotify import GONE, OVERFLOW, DirectoryWatches

# Directories. The kernel allows each user 8192 watches or more, for all programs; one takes about 1 KiB.
MAX_WATCHES: Final = 1024

# Reads of events at one look, of 64 KiB each. What is left then waits for the next look.
MAX_READS: Final = 64


class PathWatch:
    """``watch`` sets the paths, ``wait`` waits for events, ``changed`` returns the paths that they concern."""

    def __init__(self) -> None:
        self._watches: DirectoryWatches | None = None
        # Directory to name to the paths through it.
        self._names: dict[str, dict[str, set[str]]] = {}

    async def watch(self, paths: Collection[str]) -> int:
        """Watch these paths instead of the previous ones. Returns how many of their directories are not watched.

        Raises ``Retryable`` (``NoWatch``) if this user has no inotify instance left.
        """
        names = await asyncio.to_thread(_names_by_directory, paths)
        # The directories next to the root are in the way of most paths.
        wanted = sorted(names, key=lambda directory: (directory.count("/"), directory))[:MAX_WATCHES]
        try:
            watches = self._watches or DirectoryWatches()
        except OSError as error:
            raise Retryable(
                f"managed paths cannot be watched: {error.strerror}", reason=DriftReason.NO_WATCH
            ) from error
        self._watches = watches
        failed = await asyncio.to_thread(watches.watch, wanted)
        self._names = names
        return len(failed) + len(names) - len(wanted)

    async def wait(self) -> None:
        """Wait for events. Without a watch, the wait does not end."""
        if self._watches is None:
            await asyncio.get_running_loop().create_future()
            return
        await self._watches.readable()

    def changed(self) -> Collection[str] | None:
        """Return the paths that may have changed since the last call; None if any of them may have.

        None asks for a new ``watch``, because directories above the paths came or went.
        """
        changed_paths: set[str] = set()
        everything = False
        for _ in range(MAX_READS if self._watches is not None else 0):
            assert self._watches is not None
            events = list(self._watches.read())
            if not events:
                break
            for mask, directory, name in events:
                if mask & (OVERFLOW | GONE):
                    everything = True
                    continue
                paths = self._names.get(directory, {}).get(name, ())
                changed_paths.update(paths)
                everything = everything or any(not _leaf(path, directory) for path in paths)
        return None if everything else changed_paths

    def close(self) -> None:
        if self._watches is not None:
            self._watches.close()
            self._watches = None


def _names_by_directory(paths: Collection[str]) -> dict[str, dict[str, set[str]]]:
    names: dict[str, dict[str, set[str]]] = {}
    for path in paths:
        parts = path.split("/")[1:]
        for depth, name in enumerate(parts):
            directory = "/" + "/".join(parts[:depth])
            names.setdefault(directory, {}).setdefault(name, set()).add(path)
    return names


def _leaf(path: str, directory: str) -> bool:
    return path.rpartition("/")[0] == directory.rstrip("/")
