"""How the victim fares, asked once a second: its metrics, our probe on its file system, the pressure of its cgroup.

Each source may be missing at the start, and may fail later: then it is silent, which the controller knows how to take,
and the reason is in ``missing``. The metrics are fetched by a task of their own: a page that takes its time must not
hold up the rest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from nodeagent.core.etcd.histogram import WAL_FSYNC, Histogram, above, increase, parse
from nodeagent.core.update.fence_view import p50_of, p99_of
from nodeagent.errors import AgentError
from nodeagent.fence.policy.bounds import Idle
from nodeagent.fence.policy.signals import STALL, Reading, of_etcd, of_pressure, of_probe, target
from nodeagent.fence.sensors.pressure import Pressure, pressure
from nodeagent.fence.sensors.probe import FsyncProbe, fsync_probe
from nodeagent.fence.sensors.protected import Scrape, Victim, cgroup_of

__all__ = ["Hearing", "hearing"]

EVERY = 2.0
"""Seconds between two pages of metrics, and twice that where our probe speaks as well: a page costs etcd more than us.
Any longer, and a page that takes its time would leave the controller without a fresh word. An idle member makes some
tens of fsyncs in that."""
_PACE = 4.0  # appends of the probe a second while it is listened to: each costs a slow disk two or three requests
_WINDOW = 3.0  # seconds of the probe that are judged together: one second has too few samples to be strained by
_LATELY = 60.0  # seconds that the p99 which people see speaks of
_ETCD_STALL = 0.128  # the bound of etcd's buckets above STALL


class Hearing:
    """Inside of ``hearing``."""

    def __init__(self, victim: Victim, probe: FsyncProbe | None, felt: Pressure | None, missing: Sequence[str]) -> None:
        self._scrape = victim.scrape
        self._probe = probe
        self._pressure = felt
        self._aim = target(None)
        self._etcd: list[Reading] = []
        self._taken: deque[tuple[float, tuple[float, ...]]] = deque()
        self._told: set[str] = set(missing)
        self.missing = list(missing)
        self._stalls = 0.0
        self._etcd_stalls: float | None = None

    async def idle(self, seconds: float) -> Idle | None:
        """What an fsync takes while nothing is staged, which sets what counts as slow from now on. None if our probe
        cannot tell: then the strictest is taken."""
        found = None
        if self._probe is not None and seconds:
            await asyncio.sleep(seconds)
            latencies, _waiting = self._probed()
            p50, p99 = p50_of(latencies), p99_of(latencies)
            found = None if p50 is None or p99 is None else Idle(p50, p99)
        self.expect(found)
        return found

    def expect(self, idle: Idle | None) -> None:
        """From now on is what counts."""
        self._aim = target(None if idle is None else idle.p99)
        if self._probe is not None:
            self._probe.pace(_PACE)
        self._etcd_stalls = None if self._etcd_stalls is None else 0.0

    @property
    def thread(self) -> int | None:
        """Of our probe, which must wait as the victim does or it tells of somebody else."""
        return None if self._probe is None else self._probe.thread

    @property
    def exceedances(self) -> float:
        """Since the beginning: etcd's own count, where there is one."""
        return self._stalls if self._etcd_stalls is None else self._etcd_stalls

    def p99(self) -> float | None:
        return p99_of([latency for _, latencies in self._taken for latency in latencies])

    async def listen(self, seconds: float) -> None:
        """Waits, and less long if the victim's cgroup says that it is in trouble."""
        if self._pressure is None or not self._pressure.triggered:
            await asyncio.sleep(seconds)
            return
        try:
            await self._pressure.strained(seconds)
        except AgentError as error:
            self._lost(error.message)
            self._pressure = None

    def readings(self) -> list[Reading]:
        now = _now()
        found = self._etcd
        self._etcd = found[-1:]  # the last one counts until it is stale; none is missed in a turn that takes its time
        if self._probe is not None:
            latencies, waiting = self._probed()
            self._stalls += sum(1 for latency in latencies if latency > STALL)
            self._taken.append((now, latencies))
            while self._taken and now - self._taken[0][0] > _LATELY:
                self._taken.popleft()
            recent = [latency for at, some in self._taken if now - at < _WINDOW for latency in some]
            reading = of_probe(now, recent, waiting, self._aim)
            found = found if reading is None else [*found, reading]
        if self._pressure is not None:
            try:
                found = [*found, of_pressure(now, self._pressure.share())]
            except AgentError as error:
                self._lost(error.message)
                self._pressure = None
        return found

    async def follow(self, scrape: Scrape) -> None:
        """The victim's metrics, for ever."""
        before: Histogram | None = None
        while True:
            try:
                # half a megabyte of text: off the loop
                histogram = (await asyncio.to_thread(parse, await scrape(), (WAL_FSYNC,))).get(WAL_FSYNC)
            except AgentError as error:
                self._lost(error.message)
                histogram = None
            if histogram is not None:
                self._heard(before, histogram)
                before = histogram
            await asyncio.sleep(EVERY if self._probe is None else 2 * EVERY)

    def _heard(self, before: Histogram | None, histogram: Histogram) -> None:
        over = increase([before, histogram]) if before is not None else None
        if over is None:
            return
        if (reading := of_etcd(_now(), over, self._aim)) is not None:
            self._etcd.append(reading)
        self._etcd_stalls = (self._etcd_stalls or 0.0) + above(_ETCD_STALL, over).least

    def _probed(self) -> tuple[tuple[float, ...], float]:
        assert self._probe is not None
        try:
            taken = self._probe.take()
        except AgentError as error:
            self._lost(error.message)
            self._probe = None
            return (), 0.0
        return taken.latencies, taken.waiting

    def _lost(self, why: str) -> None:
        if why not in self._told:
            self._told.add(why)
            self.missing.append(why)


@asynccontextmanager
async def hearing(victim: Victim, cgroups: Path, proc: Path = Path("/proc")) -> AsyncIterator[Hearing]:
    """Raises nothing that the host can cause."""
    missing = list(victim.missing)
    async with AsyncExitStack() as stack:
        probe: FsyncProbe | None = None
        if victim.directory is not None:
            try:
                probe = await stack.enter_async_context(fsync_probe(victim.directory))
            except AgentError as error:
                missing.append(error.message)
        felt: Pressure | None = None
        try:
            file = await asyncio.to_thread(_pressure_of, victim, cgroups, proc)
            if file is not None:
                felt = await stack.enter_async_context(pressure(file))
        except AgentError as error:
            missing.append(error.message)
        heard = Hearing(victim, probe, felt, missing)
        if victim.scrape is None:
            yield heard
            return
        task = asyncio.create_task(heard.follow(victim.scrape))
        try:
            yield heard
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _pressure_of(victim: Victim, cgroups: Path, proc: Path) -> Path | None:
    for pid in victim.pids():
        if (cgroup := cgroup_of(pid, cgroups, proc)) is not None:
            return cgroup / "io.pressure"
    return None


def _now() -> float:
    return asyncio.get_running_loop().time()
