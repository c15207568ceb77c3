"""The I/O fence around whatever one unit writes, for as long as a block lasts.

    async with Bus() as bus:
        victim = await find_etcd()                      # or Victim(directory=Path("/var/lib/etcd"))
        async with fenced("rpm-ostreed.service", victim, bus=bus, undo=FileUndo(Path("/run/x"))) as fence:
            ...                                         # stage; fence.view says how it stands

It finds the disk (of ``paths``: the first that is on one), puts back what a killed run left in ``undo``, measures the
idle disk for ``terms.baseline`` seconds, sets what is static, and lets ``fence.policy.controller`` decide once a second
until the block ends. Then, also after an error or a cancellation, everything is as it was found, read back, and what
could not be put back is in ``fence.left``.

The fence never fails the block: what keeps it from working is in ``fence.view.missing`` (or, with ``active`` false,
in its ``reason`` and ``message``), and the block runs without. ``tell`` is called with a new view at each turn, from
the event loop. Nothing here needs the daemon; root, and systemd on ``bus``, are what it takes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nodeagent.core.update.fence_view import FenceView
from nodeagent.errors import AgentError, Terminal
from nodeagent.fence.actuators.actuators import HERE, Hands, Reach, recover
from nodeagent.fence.actuators.writeback import drained
from nodeagent.fence.blockdev.find import SYSROOT, find_disks, mounted_at
from nodeagent.fence.blockdev.hotplug import Hotplug, hotplug
from nodeagent.fence.policy.bounds import FENCE_BOUNDS, Bounds, Idle, careful, opening
from nodeagent.fence.policy.controller import begin, step
from nodeagent.fence.policy.disks import Disks
from nodeagent.fence.policy.shape import ladder
from nodeagent.fence.policy.signals import weigh
from nodeagent.fence.restore_log import Undo
from nodeagent.fence.sensors.protected import Victim
from nodeagent.fence.sensors.sensors import Hearing, hearing
from nodeagent.host.dbus.client import Bus

__all__ = ["Fence", "Terms", "fenced"]

TURN = 1.0
"""Seconds between two decisions; sooner if the victim's cgroup calls."""
LINGER = 10.0
"""Seconds that what the unit wrote may take to reach the disk, before everything is put back. It waits behind the cap;
let go all at once, with nobody's priority heeded any more, it held up etcd for most of a second."""
AFTERWARDS = 35.0
"""Seconds for which queues keep their shape after that. What a staging changed in the file system's own data is written
later: by XFS each half a minute (fs/xfs/xfs_log.c, xfs_log_worker), by others when it is half a minute old
(mm/page-writeback.c, dirty_expire_interval, looked at each five seconds). It is written all at once, and let into a
deep queue it held up etcd for most of a second."""
LEAVE = 30.0
"""Seconds that putting everything back may take. Reading limits back takes a few, a stuck disk for ever."""
UNWRITTEN = 1 << 20
"""Bytes of the unit in memory that are none worth waiting for."""
LOOK = 0.25
"""Seconds between two looks at these."""
_MOUNTS = Path("/proc/self/mountinfo")

Find = Callable[[Sequence[str]], Coroutine[None, None, Disks]]
Listen = Callable[[], AbstractAsyncContextManager[asyncio.Queue[Hotplug]]]
Tell = Callable[[FenceView], None]


@dataclass(frozen=True, slots=True)
class Terms:
    """What an admin may choose. ``baseline``: seconds; ``idle``: if it was measured before, then it is not
    again; ``object_fsync``: rpm-ostreed syncs each object that it writes (``object_fsync``)."""

    bounds: Bounds = FENCE_BOUNDS
    baseline: float = 10.0
    idle: Idle | None = None
    may_switch: bool = False
    object_fsync: bool = False


class Fence:
    """``view`` is how it stands, or stood last; ``left`` what could not be put back, known when the block has ended;
    ``idle`` what was measured."""

    def __init__(self, tell: Tell) -> None:
        self.view = FenceView(active=False)
        self.left: list[str] = []
        self.idle: Idle | None = None
        self._tell = tell

    def say(self, view: FenceView) -> None:
        self.view = view
        self._tell(view)


@asynccontextmanager
async def fenced(
    unit: str,
    victim: Victim,
    *,
    bus: Bus,
    undo: Undo,
    terms: Terms = Terms(),
    tell: Tell = lambda _view: None,
    paths: Sequence[str] = SYSROOT,
    find: Find = find_disks,
    listen: Listen = hotplug,
    reach: Reach = HERE,
) -> AsyncIterator[Fence]:
    fence = Fence(tell)
    async with AsyncExitStack() as stack:
        try:
            _was, failed = await recover(bus, undo, reach)
            if failed:
                raise Terminal("; ".join(failed), reason="FenceNotRecovered")
            events = await _events(stack, listen)  # before we look, so that nothing is missed in between
            disks = await _disks(victim, paths, find)
            hands = Hands(bus, undo, unit, disks, victim.pids, reach)
            stack.push_async_callback(_put_back, fence, hands)
            if not await hands.begin(object_fsync=terms.object_fsync):
                raise Terminal("; ".join(hands.missing), reason="NothingToLimit")
            heard = await stack.enter_async_context(hearing(victim, reach.cgroups, reach.proc))
            hands.probe = heard.thread
            if terms.idle is None:
                fence.idle = await heard.idle(terms.baseline)
            else:
                fence.idle = terms.idle
                heard.expect(terms.idle)
            slow = None if fence.idle is None else fence.idle.p99
            if not await hands.shape(partial(ladder, idle_p99=slow, may_switch=terms.may_switch)):
                raise Terminal("; ".join(hands.missing), reason="NothingToLimit")
            filesystem, kernel = await asyncio.to_thread(_ground, paths)
            bounds = opening(careful(terms.bounds, filesystem, kernel), fence.idle)
            turns = _Turns(fence, hands, heard, bounds, _Moves(events, disks, lambda: _disks(victim, paths, find)))
            await turns.begin()
            stack.push_async_callback(_stopped, asyncio.create_task(turns.run()))
            if bounds.drain is not None:
                task = asyncio.create_task(drained(hands, paths, bounds.drain))
                stack.push_async_callback(_stopped, task)
            stack.push_async_exit(partial(_linger, fence, hands, turns))  # while turns are taken
        except AgentError as error:
            await stack.aclose()  # what is up by now would be loosened by nobody
            fence.say(replace(fence.view, active=False, reason=error.reason, message=error.message))
        except Exception as error:  # noqa: BLE001 - as in _Turns.run
            await stack.aclose()
            fence.say(_failed(fence.view, error))
        yield fence


class _Moves:
    """Whether the file system lies on other disks by now: a path of a multipath was lost, a mirror was replaced."""

    def __init__(
        self, events: asyncio.Queue[Hotplug] | None, disks: Disks, find: Callable[[], Coroutine[None, None, Disks]]
    ) -> None:
        self._events = events
        self._disks = disks
        self._find = find

    async def look(self) -> Disks | None:
        """The new ones; None if they are the same, or cannot be told just now: the next event may."""
        if self._events is None or self._events.empty():
            return None
        while not self._events.empty():
            self._events.get_nowait()
        try:
            found = await self._find()
        except AgentError:
            return None
        if found == self._disks:
            return None
        self._disks = found
        return found


class _Turns:
    def __init__(self, fence: Fence, hands: Hands, heard: Hearing, bounds: Bounds, moves: _Moves) -> None:
        self._fence = fence
        self._hands = hands
        self._heard = heard
        self._bounds = bounds
        self._moves = moves
        self._shapes = hands.shapes
        self._state = begin(_now(), self._shapes, bounds)
        self._throttled = 0.0
        self._at = _now()
        self.note = ""
        """What is said instead of why the limits are what they are, once the unit has nothing left to write."""

    async def begin(self) -> None:
        await self._hands.writing()
        await self._hold("")

    async def run(self) -> None:
        """Until it is cancelled. An error of ours opens everything: nobody would loosen it again."""
        try:
            while True:
                await self._turn()
        except Exception as error:  # noqa: BLE001 - the update goes on without a fence, whatever it is
            self._fence.left = await self._hands.restore()
            self._fence.say(_failed(self._fence.view, error))

    async def _turn(self) -> None:
        await self._heard.listen(TURN)
        if (disks := await self._moves.look()) is not None:
            await self._hands.move(disks)
        writing = await self._hands.writing()
        readings = self._heard.readings()
        now = _now()  # not before them: what is from the future counts for nothing
        reading = weigh(readings, now, self._bounds.stale)
        if self._hands.shapes != self._shapes:
            self._shapes = self._hands.shapes
            self._state = replace(begin(now, self._shapes, self._bounds), started=self._state.started)
        self._state = step(self._state, now, reading, self._shapes, self._bounds, writing=writing)
        await self._hold("" if reading is None else str(reading.source))

    async def _hold(self, source: str) -> None:
        decision, now = self._state.decision, _now()
        if _capped(self._fence.view) and not self.note:
            self._throttled += now - self._at
        self._at = now
        await self._hands.hold(decision.limits)
        capped = decision.limits.write_bps is not None or decision.limits.write_iops is not None
        capped = capped and self._hands.limiting
        self._fence.say(
            FenceView(
                active=True,
                reason=str(decision.why),
                message=self.note or decision.because,
                write_bps=decision.limits.rate if capped else None,
                write_iops=decision.limits.write_iops if capped else None,
                p99=self._heard.p99(),
                exceedances=round(self._heard.exceedances),
                throttled=self._throttled,
                seconds=now - self._state.started,
                source=source or self._fence.view.source,
                missing=(*self._hands.missing, *self._heard.missing),
            )
        )


def _failed(view: FenceView, error: Exception) -> FenceView:
    return replace(view, active=False, reason="FenceFailed", message=f"{type(error).__name__}: {error}")


def _capped(view: FenceView) -> bool:
    return view.active and view.write_bps is not None


async def _events(stack: AsyncExitStack, listen: Listen) -> asyncio.Queue[Hotplug] | None:
    try:
        return await stack.enter_async_context(listen())
    except AgentError:  # no netlink, or no udev, which finding the disk says better
        return None


async def _disks(victim: Victim, paths: Sequence[str], find: Find) -> Disks:
    """``Terminal`` (``OtherDisk``) if the victim has one of its own."""
    disks = await find(paths)
    if victim.directory is not None:
        theirs = await find((str(victim.directory),))
        if not disks.meets(theirs):
            names = " and ".join(disk.path for disk in theirs.disks)
            raise Terminal(f"{victim.directory} is on {names}, where the update does not write", reason="OtherDisk")
    return disks


def _ground(paths: Sequence[str]) -> tuple[str, str]:
    """Type of the file system that is written to, and the kernel's release."""
    mounts = _MOUNTS.read_text()
    kinds = (mounted_at(os.path.realpath(path), mounts)[0] for path in paths if Path(path).exists())
    return next(kinds, ""), os.uname().release


async def _put_back(fence: Fence, hands: Hands) -> None:
    """To its end, also when we are cancelled meanwhile, but not for ever."""
    task = asyncio.create_task(hands.restore())
    until = _now() + LEAVE
    cancelled = False
    while not task.done() and (left := until - _now()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError:
            cancelled = True
    if task.done() and (error := task.exception()) is None:
        fence.left = task.result()
    elif task.done():
        fence.left = [f"{type(error).__name__}: {error}"]
    else:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        fence.left = [f"not everything was put back within {LEAVE:.0f} s"]
    if cancelled:
        raise asyncio.CancelledError


async def _linger(fence: Fence, hands: Hands, turns: _Turns, kind: type[BaseException] | None, *_error: object) -> bool:
    """At the end of the block, unless we are cancelled: until what the unit wrote is on the disk, or for ``LINGER``
    seconds, and then for ``AFTERWARDS`` where queues have a shape."""
    if kind is not None and not issubclass(kind, Exception):
        return False
    until = _now() + LINGER
    while _capped(fence.view) and _now() < until:
        if await hands.unwritten() <= UNWRITTEN:
            break
        await asyncio.sleep(LOOK)
    if hands.shaping:
        turns.note = "done; stays until the file system has written what it keeps of that"
        await asyncio.sleep(AFTERWARDS)
    return False


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
