# SPDX-License-Identifier: Apache-2.0
"""The queue of a disk (``/sys/block/DISK/queue``): sets a shape, and restores the original values exactly.

The original values are saved before the first write, so that ``recover`` can restore them after a kill at any point.
The side effects of the kernel (``block/elevator.c``, ``blk-sysfs.c``), and their consequences:
- Below a scheduler ``nr_requests`` is the number of its tags, one for each request until the disk has done it.
- A change of the scheduler resets ``nr_requests``, and the settings in ``iosched/`` to their defaults. So these are
  saved, too, and written after the scheduler.
- ``nr_requests`` is the depth of the disk only while the scheduler is ``none``; below a scheduler it is not shown. So
  to set a depth, the scheduler is ``none`` for a moment, and the depth shown there is saved before it is changed.
- After a scheduler was removed, ``nr_requests`` shows the depth that the driver requested, not the real one, and
  writing the shown value has no effect (seen on 6.18). Restoring the saved value would leave the disk at a depth of 4.
  So a depth is always written in two steps, by way of the number below it.
- ``wbt_lat_usec`` is missing or cannot be read if the kernel or the disk has no writeback throttling. A restored value
  counts as set by an admin: the only remaining effect is that a later change to bfq does not turn it off.
- Written values may be rounded (a depth below 4 becomes 4). Restored values were read, so they are not.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from nodeagent.core.config.text import plain_json
from nodeagent.errors import AgentError, Retryable, Terminal
from nodeagent.features.fence.decide.disks import BlockNode, DeviceNumber
from nodeagent.features.fence.decide.shape import QueueFacts, Shape
from nodeagent.features.fence.reasons import FenceReason
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.host.fs.os_errors import translated
from nodeagent.reasons import Reason

_KEY = "queue-"
_NONE = "none"
_SIZE, _DEPTH, _SCHEDULER, _WBT = "max_sectors_kb", "nr_requests", "scheduler", "wbt_lat_usec"
_NO_WBT = "0"
# BLKDEV_MIN_RQ of the kernel.
_LEAST_DEPTH = 4
_SYSFS = Path("/sys/dev/block")


class SysfsQueue:
    """The attributes of one queue; blocking. ``OSError`` of the kernel; FileNotFoundError if the disk was removed."""

    def __init__(self, number: str, root: Path = _SYSFS) -> None:
        self._disk = root / number

    def identity(self) -> str:
        """Return an id that differs for each disk that gets the same number in one boot; "" if the kernel has none."""
        self.read(_SIZE)
        try:
            return (self._disk / "diskseq").read_text().strip()
        except FileNotFoundError:
            # Kernels before 5.15 have no such file.
            return ""

    def read(self, name: str) -> str:
        return (self._disk / "queue" / name).read_text().strip()

    def write(self, name: str, value: str) -> None:
        (self._disk / "queue" / name).write_text(value)

    def names(self, directory: str) -> list[str]:
        """Return the attributes in a directory, such as iosched; none if there is no such directory."""
        try:
            return sorted(path.name for path in (self._disk / "queue" / directory).iterdir())
        except FileNotFoundError:
            return []


@dataclass(frozen=True, slots=True)
class _Found:
    """The original values. ``bare_depth``: nr_requests without a scheduler, if there was one; None until it was read.
    ``wbt``: None if there is no writeback throttling."""

    identity: str
    max_sectors_kb: str
    scheduler: str
    nr_requests: str
    iosched: Mapping[str, str] = field(default_factory=dict)
    bare_depth: str | None = None
    wbt: str | None = None


class Queue:
    """The queue of one disk. Errors are those of ``os_errors``: ``Terminal`` (``ReadOnly``) if /sys is read-only."""

    def __init__(self, disk: BlockNode, restore_log: RestoreLog, attributes: SysfsQueue | None = None) -> None:
        self._path = disk.path
        self._nvme = disk.path.startswith("/dev/nvme")
        self._paths = disk.nvme_multipath
        self._key = f"{_KEY}{disk.number}"
        self._restore_log = restore_log
        self._queue = attributes or SysfsQueue(str(disk.number))
        self._applied: Shape | None = None

    async def facts(self) -> QueueFacts:
        return await asyncio.to_thread(self._facts)

    async def apply(self, shape: Shape) -> None:
        """Set a shape. If cancelled, finish first, because a write cannot be undone half-way."""
        if shape != self._applied:
            self._applied = None
            await _whole(self._apply(shape))
            self._applied = shape

    async def restore(self) -> None:
        """Restore the original values; no effect without ``apply``. If cancelled, finish first.

        ``Retryable`` (``QueueNotRestored``) if the kernel has other values afterwards: then the entry of the log stays.
        """
        self._applied = None
        await _whole(self._put_back())

    async def _apply(self, shape: Shape) -> None:
        note = (await self._restore_log.load()).get(self._key)
        # With a log entry of a killed agent, the queue has the shape, and only the entry has the original values.
        original = await asyncio.to_thread(self._found) if note is None else _Found(**plain_json.loads(note))
        if note is None:
            await self._note(original)
        try:
            await self._write({_SIZE: str(shape.max_sectors_kb)})
        except AgentError:
            if note is None:
                # /sys is read-only: nothing was changed, and nothing can be restored.
                await self._restore_log.clear(self._key)
            raise
        if shape.scheduler or original.scheduler == _NONE:
            original = await self._apply_depth(original, str(shape.depth), shape.scheduler)
        else:
            await self._write({_DEPTH: str(shape.depth)})
        if original.wbt is not None:
            await self._write({_WBT: original.wbt if shape.wbt else _NO_WBT})

    async def _apply_depth(self, original: _Found, depth: str, scheduler: str) -> _Found:
        # A scheduler has a depth of its own. The depth of the disk itself can only be set without one.
        await self._write({_SCHEDULER: _NONE})
        if original.scheduler != _NONE and original.bare_depth is None:
            with translated("read the queue of", self._path):
                bare_depth = await asyncio.to_thread(self._queue.read, _DEPTH)
            original = replace(original, bare_depth=bare_depth)
            await self._note(original)
        await asyncio.to_thread(self._put_depth, depth)
        await self._write({_SCHEDULER: scheduler or original.scheduler})
        return original

    async def _note(self, original: _Found) -> None:
        await self._restore_log.save(self._key, json.dumps(asdict(original)))

    async def _put_back(self) -> None:
        note = (await self._restore_log.load()).get(self._key)
        if note is None:
            return
        try:
            if not await asyncio.to_thread(self._restore, _Found(**plain_json.loads(note))):
                raise Retryable(
                    f"{self._path}: its queue does not have its original values", reason=FenceReason.QUEUE_NOT_RESTORED
                )
        except (TypeError, ValueError) as error:
            raise Terminal(
                f"{self._path}: its entry in the restore log cannot be read", reason=FenceReason.QUEUE_NOT_RESTORED
            ) from error
        await self._restore_log.clear(self._key)

    def _facts(self) -> QueueFacts:
        with translated("read the queue of", self._path):
            return QueueFacts(
                max_sectors_kb=int(self._queue.read(_SIZE)),
                scheduler=_chosen(self._queue.read(_SCHEDULER)),
                schedulers=tuple(self._queue.read(_SCHEDULER).replace("[", "").replace("]", "").split()),
                nr_requests=int(self._queue.read(_DEPTH)),
                logical_block_size=int(self._queue.read("logical_block_size")),
                nvme=self._nvme,
                multipath=self._paths,
            )

    def _found(self) -> _Found:
        with translated("read the queue of", self._path):
            return _Found(
                identity=self._queue.identity(),
                max_sectors_kb=self._queue.read(_SIZE),
                scheduler=_chosen(self._queue.read(_SCHEDULER)),
                nr_requests=self._queue.read(_DEPTH),
                iosched={name: self._queue.read(f"iosched/{name}") for name in self._queue.names("iosched")},
                wbt=self._wbt(),
            )

    def _wbt(self) -> str | None:
        try:
            return self._queue.read(_WBT)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise
            return None

    async def _write(self, values: Mapping[str, str]) -> None:
        await asyncio.to_thread(self._put, values)

    def _put(self, values: Mapping[str, str]) -> None:
        with translated("write the queue of", self._path):
            for name, value in values.items():
                read = self._queue.read(name)
                if (_chosen(read) if name == _SCHEDULER else read) != value:
                    self._queue.write(name, value)

    def _put_depth(self, depth: str) -> None:
        """Set the depth of the disk itself, while there is no scheduler."""
        with translated("write the queue of", self._path):
            if int(depth) > _LEAST_DEPTH:
                # The kernel ignores a write of the present value, so the depth is first set to another one.
                self._queue.write(_DEPTH, str(int(depth) - 1))
            self._queue.write(_DEPTH, depth)

    def _restore(self, original: _Found) -> bool:
        try:
            if self._queue.identity() != original.identity:
                # Another disk has this number now.
                return True
            depth = original.nr_requests if original.scheduler == _NONE else original.bare_depth
            if depth is not None:
                self._put({_SCHEDULER: _NONE})
                self._put_depth(depth)
            # The scheduler comes first, because its change resets nr_requests and everything in iosched/.
            self._put({_SCHEDULER: original.scheduler, _DEPTH: original.nr_requests, _SIZE: original.max_sectors_kb})
            self._put({f"iosched/{name}": value for name, value in original.iosched.items()})
            if original.wbt is not None:
                self._put({_WBT: original.wbt})
            now = self._found()
        except Retryable as error:
            if error.reason != Reason.PATH_CHANGED:
                raise
            # The disk was removed.
            return True
        except FileNotFoundError:
            return True
        # Without a value before, the one of now is not ours.
        wbt = now.wbt if original.wbt is None else original.wbt
        return now == replace(original, bare_depth=None, wbt=wbt)


async def recover(restore_log: RestoreLog, root: Path = _SYSFS) -> list[str]:
    """Restore every queue that a killed agent left; return the numbers of these disks."""
    left = []
    for key in await restore_log.load():
        if key.startswith(_KEY):
            text = key.removeprefix(_KEY)
            major, _, minor = text.partition(":")
            disk = BlockNode(DeviceNumber(int(major), int(minor)), f"disk {text}")
            await Queue(disk, restore_log, SysfsQueue(text, root)).restore()
            left.append(text)
    return left


async def _whole(work: Coroutine[None, None, None]) -> None:
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        # The kernel waits for the requests in progress, so this ends.
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error from None
        raise


def _chosen(schedulers: str) -> str:
    """Return the current one of "none [mq-deadline] bfq"; a single one has no brackets."""
    return next((word[1:-1] for word in schedulers.split() if word.startswith("[")), schedulers)
