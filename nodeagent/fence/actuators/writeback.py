"""Write the dirty data of the updater to the disk a little at a time (``syncfs``), on ext4.

There each piece of a file that waits behind a cap keeps room in the journal reserved until it is written
(fs/ext4/inode.c, ext4_do_writepages). Once half of what a transaction may take is reserved, every writer waits. The
kernel starts after thirty seconds with old data, and then writes all of it, as does a program that syncs everything at
its end. Frequent small flushes avoid that. They change nothing of the disk and delay no program, but they also write
the data of other programs on that file system sooner.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Sequence
from functools import cache

from nodeagent.fence.actuators.actuators import Actuators

__all__ = ["POLL", "flush_periodically"]

POLL = 0.25
"""Seconds between two samples of the dirty bytes."""


async def flush_periodically(actuators: Actuators, paths: Sequence[str], limit: int) -> None:
    """Flush the file system of the first existing path whenever the unit has more than ``limit`` dirty bytes.

    Runs until cancelled.
    """
    while True:
        await asyncio.sleep(POLL)
        if await actuators.unwritten() > limit:
            await asyncio.to_thread(_sync, paths)


def _sync(paths: Sequence[str]) -> None:
    """Ignore errors of the file system: the syncs of the updater report them."""
    for path in paths:
        try:
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            _library().syncfs(directory)
        finally:
            os.close(directory)
        return


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)
