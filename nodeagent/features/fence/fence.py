# SPDX-License-Identifier: Apache-2.0
"""The I/O fence around the writes of one unit, for the duration of a block.

    async with Bus() as bus:
        protected = await find_etcd()                   # or Protected(directory=Path("/var/lib/etcd"))
        restore_log = RestoreLog(Path("/run/x"))
        async with fenced("x.service", protected, bus=bus, restore_log=restore_log) as fence:
            ...                                         # stage; fence.view is the current state

``fenced`` finds the disk of ``paths`` (the first one that is on a disk), restores what a killed run left in
``restore_log``, measures the idle disk for ``options.baseline`` seconds, and sets the limits. The controller then
decides once a second until the block ends. At the end, also after an error or a cancellation, everything is restored
and read back; ``fence.left`` lists what could not be restored.

The fence never fails the block. If it cannot work, ``fence.view`` is not active and has the reason; ``missing`` lists
facilities that this host lacks. ``emit`` is called with the view at each decision, from the event loop. The fence needs
root and systemd on ``bus``, but not the daemon.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nodeagent.errors import AgentError, Terminal
from nodeagent.features.fence.actuators.actuators import DEFAULT, Actuators, SystemPaths, recover
from nodeagent.features.fence.actuators.object_fsync import IsBusy
from nodeagent.features.fence.blockdev.find import SYSROOT, filesystem_at, find_disks
from nodeagent.features.fence.control_loop import ControlLoop, failed_view, flush_periodically
from nodeagent.features.fence.decide.bounds import FENCE_BOUNDS, Bounds, Idle, careful, opening
from nodeagent.features.fence.decide.disk_latency import DiskLatency
from nodeagent.features.fence.decide.disks import Disks
from nodeagent.features.fence.decide.shape import choose_shape
from nodeagent.features.fence.decide.view import FenceView
from nodeagent.features.fence.reasons import FenceReason
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.features.fence.sensors.sensors import Protected, loop_time, open_sensors
from nodeagent.host.dbus.client import Bus

_MOUNTS = Path("/proc/self/mountinfo")
# The scheduler is switched only on the file system where the measurements show a benefit (docs/research/fence.md).
_SWITCHED = "xfs"

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
_UNWRITTEN = 1 << 20

# Seconds between two samples of the dirty bytes.
_POLL = 0.25

Emit = Callable[[FenceView], None]
Find = Callable[[Sequence[str]], Coroutine[None, None, Disks]]


@dataclass(frozen=True, slots=True)
class FenceOptions:
    """``baseline``: seconds for which the idle disk is measured; ``idle``: an earlier measurement, used instead.

    ``object_fsync``: the unit syncs each object that it writes into the repository, from its next start on; it returns
    whether that must wait, because the unit is busy. ``syncs`` is that unit, if it is not the one that is limited but a
    part of it. ``switch_scheduler``: on XFS, a disk without a scheduler gets one,
    so that I/O priorities have an effect; only the benchmark turns this off.
    """

    bounds: Bounds = FENCE_BOUNDS
    baseline: float = 10.0
    idle: Idle | None = None
    object_fsync: IsBusy | None = None
    syncs: str = ""
    switch_scheduler: bool = True


class ActiveFence:
    """``view`` is the current or last state; ``left`` lists what could not be restored, known after the block.

    ``idle`` is the measurement of the idle disk, ``disk_latency`` that of etcd's disk.
    """

    def __init__(self, emit: Emit) -> None:
        self.view = FenceView(active=False)
        self.left: list[str] = []
        self.idle: Idle | None = None
        self.disk_latency: DiskLatency | None = None
        self._emit = emit

    def show(self, view: FenceView) -> None:
        self.view = view
        self._emit(view)


@asynccontextmanager
async def fenced(
    unit: str,
    protected: Protected,
    *,
    bus: Bus,
    restore_log: RestoreLog,
    options: FenceOptions = FenceOptions(),
    emit: Emit = lambda _view: None,
    paths: Sequence[str] = SYSROOT,
    find: Find = find_disks,
    system: SystemPaths = DEFAULT,
) -> AsyncIterator[ActiveFence]:
    fence = ActiveFence(emit)
    async with AsyncExitStack() as stack:
        try:
            # The limits of a killed agent are removed first. Otherwise they would be recorded as the original values.
            _was, failed = await recover(bus, restore_log, system)
            if failed:
                raise Terminal("; ".join(failed), reason=FenceReason.FENCE_NOT_RECOVERED)
            disks = await _find_shared(protected, paths, find)
            actuators = Actuators(bus, restore_log, unit, disks, protected.pids, system, syncs=options.syncs or unit)
            # The restoration is registered before the first limit, so that every error and cancellation runs it.
            stack.push_async_callback(restore, actuators, fence.left)
            if not await actuators.begin(object_fsync=options.object_fsync):
                raise Terminal("; ".join(actuators.missing), reason=FenceReason.NOTHING_TO_LIMIT)
            sensors = await stack.enter_async_context(open_sensors(protected))
            # The thread of the probe gets the priority of etcd, so that it measures what etcd experiences.
            actuators.probe_thread = sensors.thread
            fence.disk_latency = sensors.disk_latency
            # The idle disk is measured before the update writes, and decides how strict the limits are.
            fence.idle = options.idle or await sensors.measure_idle(options.baseline)
            sensors.expect(fence.idle)
            filesystem, kernel = await asyncio.to_thread(_filesystem, paths)
            switch = options.switch_scheduler and filesystem == _SWITCHED
            idle_p99 = None if fence.idle is None else fence.idle.p99
            if not await actuators.shape(partial(choose_shape, idle_p99=idle_p99, may_switch=switch)):
                raise Terminal("; ".join(actuators.missing), reason=FenceReason.NOTHING_TO_LIMIT)
            bounds = opening(careful(options.bounds, filesystem, kernel), fence.idle)
            loop = ControlLoop(fence, actuators, sensors, bounds)
            await loop.begin()
            stack.push_async_callback(_stop, asyncio.create_task(loop.run()))
            if bounds.drain is not None:
                task = asyncio.create_task(flush_periodically(actuators, paths, bounds.drain))
                stack.push_async_callback(_stop, task)
            # Runs first at the end, while the controller still decides.
            stack.push_async_exit(partial(_finish, fence, actuators, loop))
        except AgentError as error:
            # Without the controller no limit would ever be loosened.
            await stack.aclose()
            fence.show(replace(fence.view, active=False, reason=error.reason, message=error.message))
        except Exception as error:  # noqa: BLE001 - an update continues without a fence, whatever its error is
            await stack.aclose()
            fence.show(failed_view(fence.view, error))
        yield fence


async def _find_shared(protected: Protected, paths: Sequence[str], find: Find) -> Disks:
    """Return the disks of ``paths``. ``Terminal`` (``OtherDisk``) if the protected workload has another disk."""
    disks = await find(paths)
    if protected.directory is not None:
        theirs = await find((str(protected.directory),))
        # Limits on one disk do not help a workload on another one.
        if not disks.meets(theirs):
            names = " and ".join(disk.path for disk in theirs.disks)
            raise Terminal(
                f"{protected.directory} is on {names}, where the update does not write", reason=FenceReason.OTHER_DISK
            )
    return disks


def _filesystem(paths: Sequence[str]) -> tuple[str, str]:
    """Return the type of the file system that is written to, and the release of the kernel."""
    # Users choose the names of mount points, with FUSE.
    mounts = _MOUNTS.read_text(errors="surrogateescape")
    kinds = (filesystem_at(os.path.realpath(path), mounts) for path in paths if Path(path).exists())
    return next(kinds, ""), os.uname().release


async def _finish(
    fence: ActiveFence, actuators: Actuators, loop: ControlLoop, kind: type[BaseException] | None, *_error: object
) -> bool:
    """Wait until the data of the unit is on the disk, then for the metadata if queues have another shape.

    There is no wait if the block was cancelled.
    """
    if fence.disk_latency is not None:
        fence.disk_latency.end_of_staging()
    if kind is not None and not issubclass(kind, Exception):
        return False
    until = loop_time() + FLUSH_TIMEOUT
    while fence.view.capped and loop_time() < until:
        if await actuators.unwritten() <= _UNWRITTEN:
            break
        await asyncio.sleep(_POLL)
    if actuators.shaping:
        loop.note = "done; the limits stay until the file system has written its metadata"
        await asyncio.sleep(METADATA_DELAY)
    return False


async def restore(actuators: Actuators, left: list[str]) -> None:
    """Restore everything, also if cancelled, but for ``RESTORE_TIMEOUT`` at most. Failures are added to ``left``."""
    task = asyncio.create_task(actuators.restore())
    until = loop_time() + RESTORE_TIMEOUT
    cancelled = False
    while not task.done() and (remaining := until - loop_time()) > 0:
        try:
            await asyncio.wait({task}, timeout=remaining)
        except asyncio.CancelledError:
            cancelled = True
    if not task.done():
        await _stop(task)
        left.append(f"not everything was restored within {RESTORE_TIMEOUT:.0f} s")
    elif (error := task.exception()) is not None:
        left.append(f"{type(error).__name__}: {error}")
    else:
        left[:] = task.result()
    if cancelled:
        raise asyncio.CancelledError


async def _stop(task: asyncio.Task[None] | asyncio.Task[list[str]]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
