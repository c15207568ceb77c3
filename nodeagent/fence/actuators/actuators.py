"""Everything that the fence moves: caps of the unit, queues of disks, I/O priorities.

What fails is told in ``missing`` and not tried again, except for caps, which are asked for again at each turn: the
kernel may have been slow. ``restore`` puts everything back, whatever of it fails; what could not be put back stays in
``undo``, and ``recover`` tries again.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodeagent.errors import AgentError
from nodeagent.fence.actuators import block_queue, cgroup, object_fsync
from nodeagent.fence.actuators.block_queue import Queue, SysfsQueue
from nodeagent.fence.actuators.cgroup import UnitIo
from nodeagent.fence.actuators.object_fsync import ObjectFsync
from nodeagent.fence.actuators.priorities import IoPriority, Priorities
from nodeagent.fence.policy.controller import Limits
from nodeagent.fence.policy.disks import BlockNode, Disks
from nodeagent.fence.policy.shape import QueueFacts, Shape, Untouched
from nodeagent.fence.restore_log import Undo
from nodeagent.host.dbus.client import Bus

__all__ = ["HERE", "Hands", "Reach", "recover"]

_WROTE = "wbytes="
_UNWRITTEN = ("file_dirty", "file_writeback")
_AGAIN = 5.0
"""Seconds between two looks for tasks without their priority: few, since a task has that of the one that started it."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Where hands are put; other places than the kernel's are for tests."""

    cgroups: Path = Path("/sys/fs/cgroup")
    disks: Path = Path("/sys/dev/block")
    priorities: IoPriority | None = None
    proc: Path = Path("/proc")
    objects: Callable[[Bus, Undo, str], ObjectFsync] = ObjectFsync


HERE = Reach()

Choose = Callable[[QueueFacts], tuple[Shape, ...] | Untouched]
"""Which shapes a queue may be given: ``fence.policy.shape.ladder``, but for what was found."""


class Hands:
    """On one unit and the disks below it; ``begin`` and ``shape`` first. ``pids``: the victim's processes now."""

    def __init__(
        self, bus: Bus, undo: Undo, unit: str, disks: Disks, pids: Callable[[], Sequence[int]], reach: Reach
    ) -> None:
        self.shapes: tuple[Shape, ...] = ()
        """What the queues may be given; none where they stay as they are."""
        self.missing: list[str] = list(disks.notes)
        self._disks = disks
        self._pids = pids
        self._undo = undo
        self._reach = reach
        self._unit = UnitIo(bus, undo, unit, reach.cgroups)
        self._queues = self._queues_of(disks)
        self._choose: Choose | None = None
        self._priorities = Priorities(undo, reach.priorities, reach.proc)
        self._objects = reach.objects(bus, undo, unit)
        self.limiting = False
        """Whether caps are to be had here."""
        self.probe: int | None = None
        """The thread that speaks for the victim; it gets the victim's priority."""
        self.shaping = False
        """Whether queues have another shape than the one they were found with, or may have."""
        self._syncing = False
        self._prioritising = True
        self._caps: tuple[int | None, int | None] | None = None
        self._wrote: tuple[float, int] | None = None
        self._cgroup: Path | None = None
        self._prioritised = -math.inf

    async def begin(self, *, object_fsync: bool) -> bool:
        """Sets what stays as long as we do. False: nothing can be moved here, so that nothing need be measured."""
        self._syncing = object_fsync and await self._tried(self._objects.begin())
        self.limiting = await self._tried(self._unit.begin())
        return self._syncing or self.limiting or await asyncio.to_thread(self._writable)

    async def shape(self, choose: Choose) -> bool:
        """False: nothing can be moved here after all. Queues are given their tight shape, or it is not known whether
        they take one."""
        self._choose = choose
        shapes = await self._ladder(choose)
        if isinstance(shapes, Untouched):
            self._miss(f"queues stay as they are: {shapes.why}")
        elif await self._tried(self._apply(shapes[-1])):
            self.shapes, self.shaping = shapes, True
        return self._syncing or self.limiting or bool(self.shapes)

    async def move(self, disks: Disks) -> None:
        """The same on other disks, as well as it goes; the old ones are as they were found."""
        await self._tried(self._unshape())
        if self.limiting:
            await self._tried(self._unit.hold(self._disks.limits, None, None))
        self._disks, self._queues = disks, self._queues_of(disks)
        self._caps = self._wrote = None
        self.shapes, self.shaping = (), False
        if self._choose is not None:
            await self.shape(self._choose)

    async def hold(self, limits: Limits) -> None:
        """From now on. For each turn, also when nothing changed: tasks come and go. ``shapes`` is empty afterwards if
        the queues do not take any more."""
        if limits.shape is not None:
            if not await self._tried(self._apply(limits.shape)):
                self.shapes = ()
            self.shaping = True
            if limits.shape.priorities:
                await self._prioritise()
        elif self.shaping:
            self.shaping = not await self._tried(self._unshape())
        caps = (limits.write_bps, limits.write_iops)
        if self.limiting and caps != self._caps:
            self._caps = caps if await self._tried(self._unit.hold(self._disks.limits, *caps)) else None

    async def writing(self) -> float | None:
        """Bytes a second that the unit wrote to the limited disks since the last question; None if nobody knows."""
        wrote = None
        if self.limiting:
            if (cgroup := await self._home()) is not None:
                wrote = await asyncio.to_thread(_written, cgroup, self._disks.limits)
            if wrote is None:
                self._cgroup = None
        now, before = asyncio.get_running_loop().time(), self._wrote
        self._wrote = None if wrote is None else (now, wrote)
        if wrote is None or before is None or now <= before[0] or wrote < before[1]:
            return None
        return (wrote - before[1]) / (now - before[0])

    async def unwritten(self) -> int:
        """Bytes that the unit wrote and the disk does not have yet; 0 where nobody knows."""
        cgroup = await self._home()
        return 0 if cgroup is None else await asyncio.to_thread(_unwritten, cgroup)

    async def restore(self) -> list[str]:
        """All of it. Answers with what could not be put back, in words."""
        self.shaping = False
        return await _all(
            *(each.restore for each in self._queues),
            self._unit.end,
            self._priorities.restore,
            self._objects.end,
        )

    def _queues_of(self, disks: Disks) -> list[Queue]:
        return [Queue(disk, self._undo, SysfsQueue(str(disk.number), self._reach.disks)) for disk in disks.disks]

    def _writable(self) -> bool:
        """Queues, by the look of them."""
        files = [self._reach.disks / str(disk.number) / "queue/max_sectors_kb" for disk in self._disks.disks]
        return all(os.access(file, os.W_OK) for file in files)

    async def _ladder(self, choose: Choose) -> tuple[Shape, ...] | Untouched:
        """One shape for all disks, so they must be alike."""
        found: list[tuple[Shape, ...]] = []
        for each in self._queues:
            try:
                facts = await each.facts()
            except AgentError as error:
                return Untouched(error.message)
            shapes = choose(facts)
            if isinstance(shapes, Untouched):
                return shapes
            found.append(shapes)
        if not found or any(shapes != found[0] for shapes in found):
            return Untouched("there are several, which are not alike")
        return found[0]

    async def _apply(self, shape: Shape) -> None:
        for each in self._queues:
            await each.apply(shape)

    async def _unshape(self) -> None:
        for each in self._queues:
            await each.restore()

    async def _prioritise(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._prioritising or now - self._prioritised < _AGAIN:
            return
        cgroup = await self._home()
        ours = [] if cgroup is None else await asyncio.to_thread(_processes, cgroup)
        self._prioritised = now if ours else -math.inf  # one that has just started is not to write for seconds first
        theirs = await asyncio.to_thread(self._pids)
        self._prioritising = await self._tried(self._priorities.hold(ours, theirs))
        if self._prioritising and theirs and self.probe is not None:
            await self._tried(self._priorities.own(self.probe))
            self.probe = None

    async def _home(self) -> Path | None:
        """Where the unit's tasks are. A service has the same cgroup each time it runs, so systemd is not asked each
        second."""
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


async def recover(bus: Bus, undo: Undo, reach: Reach = HERE) -> tuple[bool, list[str]]:
    """First thing at start: puts back what a killed agent left. Whether there was anything, and what could not be put
    back, in words. Raises nothing that the host can cause."""
    try:
        left = bool(await undo.load())
    except AgentError as error:
        return True, [error.message]
    if not left:
        return False, []

    async def units() -> None:
        await cgroup.recover(bus, undo, reach.cgroups)

    async def queues() -> None:
        await block_queue.recover(undo, reach.disks)

    async def objects() -> None:
        for unit in await object_fsync.left(undo):
            await reach.objects(bus, undo, unit).end()

    return True, await _all(queues, units, Priorities(undo, reach.priorities, reach.proc).restore, objects)


async def _all(*work: Callable[[], Awaitable[None]]) -> list[str]:
    failed = []
    for each in work:
        try:
            await each()
        except AgentError as error:
            failed.append(error.message)
        except Exception as error:  # noqa: BLE001 - or what comes after it would stay as we made it
            failed.append(f"{type(error).__name__}: {error}")
    return failed


def _written(cgroup: Path, disks: Sequence[BlockNode]) -> int | None:
    """From ``io.stat``, where a cgroup has one: systemd gives it the controller with the first limit."""
    numbers = {str(disk.number) for disk in disks}
    try:
        lines = [line.split() for line in (cgroup / "io.stat").read_text().splitlines()]
    except OSError:
        return None
    words = [word for line in lines if line and line[0] in numbers for word in line[1:] if word.startswith(_WROTE)]
    return sum(int(word.removeprefix(_WROTE)) for word in words)


def _unwritten(cgroup: Path) -> int:
    """From ``memory.stat``, which counts what waits for a cap as written back just now."""
    try:
        lines = (line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        return sum(int(count) for name, count in lines if name in _UNWRITTEN)
    except (OSError, ValueError):
        return 0


def _processes(cgroup: Path) -> list[int]:
    """Also of groups below it."""
    found: list[int] = []
    for file in cgroup.rglob("cgroup.procs"):
        with suppress(OSError, ValueError):
            found += map(int, file.read_text().split())
    return found
