# SPDX-License-Identifier: Apache-2.0
"""All limits that the fence sets: the caps of the unit, the queues of the disks, I/O priorities, syncs of objects.

A failure is listed in ``missing``, and that limit is not tried again. Caps are an exception: they are requested again
at each decision, because the kernel may have been slow. ``restore`` restores everything even if parts of it fail; what
could not be restored stays in the restore log, and ``recover`` tries again.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from nodeagent.errors import AgentError
from nodeagent.features.fence.actuators import block_queue, cgroup
from nodeagent.features.fence.actuators.block_queue import Queue, SysfsQueue
from nodeagent.features.fence.actuators.cgroup import UnitIo, dirty_bytes, processes, written_bytes
from nodeagent.features.fence.actuators.object_fsync import IsBusy, ObjectFsync, units_left
from nodeagent.features.fence.actuators.priorities import IoPriority, Priorities
from nodeagent.features.fence.decide.controller import IoLimits
from nodeagent.features.fence.decide.disks import Disks
from nodeagent.features.fence.decide.shape import QueueFacts, Shape, UnshapedQueue
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.host.dbus.client import Bus

# Seconds between two searches for tasks without their priority. New tasks inherit that of the task that starts them, so
# there are few.
_PRIORITY_INTERVAL = 5.0

# ``fence.policy.shape.choose_shape`` without the facts.
Choose = Callable[[QueueFacts], Shape | UnshapedQueue]


@dataclass(frozen=True, slots=True)
class SystemPaths:
    """Tests pass other places than those of the kernel."""

    cgroups: Path = Path("/sys/fs/cgroup")
    disks: Path = Path("/sys/dev/block")
    priorities: IoPriority | None = None
    objects: Callable[[Bus, RestoreLog, str], ObjectFsync] = ObjectFsync


DEFAULT: Final = SystemPaths()


class Actuators:
    """The limits of one service or slice and the disks below it. Call ``begin`` and ``shape`` first.

    ``syncs`` is the service that syncs each object.
    ``pids`` returns the current processes of the protected workload.
    """

    def __init__(
        self,
        bus: Bus,
        restore_log: RestoreLog,
        unit: str,
        disks: Disks,
        pids: Callable[[], Sequence[int]],
        system: SystemPaths,
        *,
        syncs: str,
    ) -> None:
        # The shape that the queues get; None if they stay unchanged.
        self.queue_shape: Shape | None = None
        self.missing: list[str] = list(disks.notes)
        # Whether caps can be set on this host.
        self.limiting = False
        # The thread that probes for the protected workload; it gets the same priority.
        self.probe_thread: int | None = None
        # Whether queues have, or may have, another shape than originally.
        self.shaping = False
        self._disks = disks
        self._pids = pids
        self._system = system
        self._unit = UnitIo(bus, restore_log, unit, system.cgroups)
        self._queues = [Queue(disk, restore_log, SysfsQueue(str(disk.number), system.disks)) for disk in disks.disks]
        self._priorities = Priorities(restore_log, system.priorities)
        self._objects = system.objects(bus, restore_log, syncs)
        self._syncing = False
        self._prioritising = True
        self._prioritised = -math.inf
        self._caps: tuple[int | None, int | None] | None = None
        self._written: tuple[float, int] | None = None
        self._cgroup: Path | None = None

    async def begin(self, *, object_fsync: IsBusy | None) -> bool:
        """Set the limits that never change. False: nothing can be limited here, so no measurement is needed."""
        self._syncing = object_fsync is not None and await self._tried(self._objects.begin(object_fsync))
        self.limiting = await self._tried(self._unit.begin())
        return self._syncing or self.limiting or await asyncio.to_thread(self._queues_writable)

    async def shape(self, choose: Choose) -> bool:
        """Give the queues a shape. False: nothing can be limited on this host."""
        shape = await self._shape_for_all(choose)
        if isinstance(shape, UnshapedQueue):
            self._miss(f"queues stay as they are: {shape.why}")
        elif await self._tried(self._apply(shape)):
            self.queue_shape, self.shaping = shape, True
        return self._syncing or self.limiting or self.queue_shape is not None

    async def hold(self, limits: IoLimits) -> None:
        """Set the limits. Called at each decision, also if they did not change, because new tasks start.

        If the queues reject the shape, ``queue_shape`` is None afterwards.
        """
        if limits.shape is not None:
            if not await self._tried(self._apply(limits.shape)):
                self.queue_shape = None
            self.shaping = True
            if limits.shape.priorities:
                await self._prioritise()
        elif self.shaping:
            self.shaping = not await self._tried(self._restore_queues())
        caps = (limits.write_bps, limits.write_iops)
        if self.limiting and caps != self._caps:
            self._caps = caps if await self._tried(self._unit.hold(self._disks.limit, *caps)) else None

    async def write_rate(self) -> float | None:
        """Return the bytes per second that the unit wrote since the last call; None if unknown."""
        written = None
        if self.limiting:
            if (cgroup := await self._unit_cgroup()) is not None:
                written = await asyncio.to_thread(written_bytes, cgroup, self._disks.limit)
            if written is None:
                self._cgroup = None
        now, before = asyncio.get_running_loop().time(), self._written
        self._written = None if written is None else (now, written)
        # A count that went down is that of a new cgroup, because the unit was started again.
        if written is None or before is None or now <= before[0] or written < before[1]:
            return None
        return (written - before[1]) / (now - before[0])

    async def unwritten(self) -> int:
        """Return the bytes of the unit that are not on the disk yet; 0 if unknown."""
        cgroup = await self._unit_cgroup()
        return 0 if cgroup is None else await asyncio.to_thread(dirty_bytes, cgroup)

    async def restore(self) -> list[str]:
        """Restore everything; return a message for each failure."""
        self.shaping = False
        queues = (queue.restore for queue in self._queues)
        return await _run_all(*queues, self._unit.end, self._priorities.restore, self._objects.end)

    def _queues_writable(self) -> bool:
        files = [self._system.disks / str(disk.number) / "queue/max_sectors_kb" for disk in self._disks.disks]
        return all(os.access(file, os.W_OK) for file in files)

    async def _shape_for_all(self, choose: Choose) -> Shape | UnshapedQueue:
        """Return the shape of all disks, which must be alike."""
        shapes: set[Shape] = set()
        for queue in self._queues:
            try:
                facts = await queue.facts()
            except AgentError as error:
                return UnshapedQueue(error.message)
            shape = choose(facts)
            if isinstance(shape, UnshapedQueue):
                return shape
            shapes.add(shape)
        return shapes.pop() if len(shapes) == 1 else UnshapedQueue("there are several, which are not alike")

    async def _apply(self, shape: Shape) -> None:
        for queue in self._queues:
            await queue.apply(shape)

    async def _restore_queues(self) -> None:
        for queue in self._queues:
            await queue.restore()

    async def _prioritise(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._prioritising or now - self._prioritised < _PRIORITY_INTERVAL:
            return
        cgroup = await self._unit_cgroup()
        ours = [] if cgroup is None else await asyncio.to_thread(processes, cgroup)
        # While the unit has no process, search at each decision, so that it does not write for seconds at first.
        self._prioritised = now if ours else -math.inf
        theirs = await asyncio.to_thread(self._pids)
        self._prioritising = await self._tried(self._priorities.hold(ours, theirs))
        if self._prioritising and theirs and self.probe_thread is not None:
            await self._tried(self._priorities.raise_own(self.probe_thread))
            self.probe_thread = None

    async def _unit_cgroup(self) -> Path | None:
        """Return the cgroup of the unit. A service has the same one each time it runs, so the answer is kept."""
        if self._cgroup is None:
            with suppress(AgentError):
                self._cgroup = await self._unit.cgroup()
        return self._cgroup

    async def _tried(self, work: Awaitable[None]) -> bool:
        try:
            await work
        except AgentError as error:
            self._miss(error.message)
            return False
        return True

    def _miss(self, what: str) -> None:
        if what not in self.missing:
            self.missing.append(what)


async def recover(bus: Bus, restore_log: RestoreLog, system: SystemPaths = DEFAULT) -> tuple[bool, list[str]]:
    """Restore what a killed agent left. Called first at the start.

    Return whether there was anything, and a message for each failure. Raises nothing that the host can cause.
    """
    try:
        left = await restore_log.load()
    except AgentError as error:
        return True, [error.message]
    if not left:
        return False, []
    return True, await _run_all(
        partial(block_queue.recover, restore_log, system.disks),
        partial(cgroup.recover, bus, restore_log, system.cgroups),
        Priorities(restore_log, system.priorities).restore,
        *(system.objects(bus, restore_log, unit).end for unit in units_left(left)),
    )


async def _run_all(*steps: Callable[[], Awaitable[object]]) -> list[str]:
    """Run all steps; return a message for each that failed."""
    failed = []
    for step in steps:
        try:
            await step()
        except AgentError as error:
            failed.append(error.message)
        except Exception as error:  # noqa: BLE001 - otherwise the steps after it would be skipped
            failed.append(f"{type(error).__name__}: {error}")
    return failed
