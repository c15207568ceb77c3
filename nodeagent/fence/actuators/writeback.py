"""Has what the updater wrote and did not sync go to the disk a little at a time (``syncfs``).

For ext4 (``fence.policy.bounds.careful``), where each piece of a file that waits behind a cap keeps room in the journal
reserved until it is written (fs/ext4/inode.c, ext4_do_writepages). Once half of what a transaction may take is
reserved, whoever writes anything waits. The kernel begins after thirty seconds with what is old, and then with all of
it; so does a program that syncs everything at its end. Sent on all the time, it is never many pieces at once. Nothing
of the disk is changed for that, and nobody is made to wait, but what others have in memory for that file system is
written sooner, too.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Sequence
from functools import cache

from nodeagent.fence.actuators.actuators import Hands

__all__ = ["EVERY", "drained"]

EVERY = 0.25
"""Seconds between two looks."""


async def drained(hands: Hands, paths: Sequence[str], most: int) -> None:
    """Until it is cancelled: the file system of the first path that is there, whenever the unit has more than ``most``
    bytes in memory."""
    while True:
        await asyncio.sleep(EVERY)
        if await hands.unwritten() > most:
            await asyncio.to_thread(_sync, paths)


def _sync(paths: Sequence[str]) -> None:
    """What fails is the updater's to hear of: its own syncs tell it."""
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
