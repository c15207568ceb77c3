"""The end of a fence: wait for the last writes, then restore everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nodeagent.fence.actuators.actuators import Actuators
from nodeagent.fence.control_loop import ControlLoop

# Seconds for the data of the unit to reach the disk before the limits are removed. The data waits behind the cap.
# Released all at once, without any priorities, it held up etcd for most of a second.
FLUSH_TIMEOUT = 10.0

# Seconds for which queues keep their shape after that. The metadata that a staging changed is written later: by XFS
# every half minute (fs/xfs/xfs_log.c, xfs_log_worker), by other file systems when it is half a minute old
# (mm/page-writeback.c, dirty_expire_interval, checked every five seconds). It is written all at once, and in a deep
# queue it held up etcd for most of a second.
METADATA_DELAY = 35.0

# Seconds for restoring everything. Reading limits back takes a few; a stuck disk would block without end.
RESTORE_TIMEOUT = 30.0

# Dirty bytes of the unit below which there is no wait.
UNWRITTEN = 1 << 20

# Seconds between two samples of the dirty bytes.
POLL = 0.25


async def wait_for_writes(actuators: Actuators, capped: Callable[[], bool], loop: ControlLoop) -> None:
    """Wait until the data of the unit is on the disk, then for the metadata if queues have another shape."""
    until = _now() + FLUSH_TIMEOUT
    while capped() and _now() < until:
        if await actuators.unwritten() <= UNWRITTEN:
            break
        await asyncio.sleep(POLL)
    if actuators.shaping:
        loop.note = "done; the limits stay until the file system has written its metadata"
        await asyncio.sleep(METADATA_DELAY)


async def restore(actuators: Actuators, left: list[str]) -> None:
    """Restore everything, also if cancelled, but for ``RESTORE_TIMEOUT`` at most. Failures are added to ``left``."""
    task = asyncio.create_task(actuators.restore())
    until = _now() + RESTORE_TIMEOUT
    cancelled = False
    while not task.done() and (remaining := until - _now()) > 0:
        try:
            await asyncio.wait({task}, timeout=remaining)
        except asyncio.CancelledError:
            cancelled = True
    if not task.done():
        await stop(task)
        left.append(f"not everything was restored within {RESTORE_TIMEOUT:.0f} s")
    elif (error := task.exception()) is not None:
        left.append(f"{type(error).__name__}: {error}")
    else:
        left[:] = task.result()
    if cancelled:
        raise asyncio.CancelledError


async def stop(task: asyncio.Task[None] | asyncio.Task[list[str]]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
