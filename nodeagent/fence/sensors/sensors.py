"""The latency of the protected workload, from its metrics and a probe on its file system.

Each source may be missing at the start and may fail later. Then it returns no readings, which the controller expects,
and the reason is in ``missing``. A separate task fetches the metrics, so that a slow page does not delay the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from nodeagent.core.etcd.disk_latency import HISTOGRAMS, DiskLatency
from nodeagent.core.etcd.histogram import WAL_FSYNC, Histogram, above, increase, parse
from nodeagent.core.update.fence_view import quantile_of
from nodeagent.errors import AgentError
from nodeagent.fence.policy.bounds import Idle
from nodeagent.fence.policy.signals import ETCD_STALL, STALL, Reading, of_etcd, of_probe, target
from nodeagent.fence.sensors.probe import FsyncProbe, fsync_probe
from nodeagent.fence.sensors.protected import Protected, Scrape

# Seconds between two pages of metrics, and twice that if the probe works as well: a page costs etcd more than the
# agent. With a longer interval, a slow page would leave the controller without a fresh reading. An idle member does
# some tens of fsyncs in this time.
SCRAPE_INTERVAL = 2.0
# Appends per second of the probe while the limits are set: each costs a slow disk two or three requests.
_PACE = 4.0
# Seconds of the probe that are judged together: one second has too few samples to be strained.
_WINDOW = 3.0
# Seconds that the p99 in the status covers.
_RECENT = 60.0


class Sensors:
    """Open while ``open_sensors`` lasts."""

    def __init__(self, probe: FsyncProbe | None, missing: Sequence[str]) -> None:
        self.disk_latency = DiskLatency()
        self._probe = probe
        self._target = target(None)
        self._etcd: list[Reading] = []
        self._taken: deque[tuple[float, tuple[float, ...]]] = deque()
        self.missing = list(missing)
        self._stalls = 0.0
        self._etcd_stalls: float | None = None

    async def measure_idle(self, seconds: float) -> Idle | None:
        """Measure the fsyncs of the idle disk; they determine which ones count as slow.

        None if the probe cannot measure; then the strictest target applies.
        """
        found = None
        if self._probe is not None and seconds:
            await asyncio.sleep(seconds)
            latencies, _waiting = self._take()
            p50, p99 = quantile_of(latencies, 0.5), quantile_of(latencies, 0.99)
            found = None if p50 is None or p99 is None else Idle(p50, p99)
        self.expect(found)
        return found

    def expect(self, idle: Idle | None) -> None:
        """Use this measurement, and count stalls from now on."""
        self._target = target(None if idle is None else idle.p99)
        if self._probe is not None:
            self._probe.pace(_PACE)
        self._etcd_stalls = None if self._etcd_stalls is None else 0.0

    @property
    def thread(self) -> int | None:
        """The thread of the probe. It needs the priority of the protected workload, or its latency is another one."""
        return None if self._probe is None else self._probe.thread

    @property
    def exceedances(self) -> float:
        """The number of stalls since the beginning, from etcd's own histogram if possible."""
        return self._stalls if self._etcd_stalls is None else self._etcd_stalls

    def p99(self) -> float | None:
        return quantile_of([latency for _, latencies in self._taken for latency in latencies], 0.99)

    def readings(self) -> list[Reading]:
        now = _now()
        found = self._etcd
        # The last one counts until it is stale, so that none is missed in a slow turn.
        self._etcd = found[-1:]
        if self._probe is not None:
            latencies, waiting = self._take()
            self._stalls += sum(1 for latency in latencies if latency > STALL)
            self._taken.append((now, latencies))
            while self._taken and now - self._taken[0][0] > _RECENT:
                self._taken.popleft()
            recent = [latency for at, some in self._taken if now - at < _WINDOW for latency in some]
            reading = of_probe(now, recent, waiting, self._target)
            found = found if reading is None else [*found, reading]
        return found

    async def follow(self, scrape: Scrape) -> None:
        """Fetch the metrics until cancelled."""
        before: Histogram | None = None
        while True:
            try:
                # Half a megabyte of text would block the loop.
                page = await asyncio.to_thread(parse, await scrape(), tuple(HISTOGRAMS.values()))
            except AgentError as error:
                self._miss(error.message)
                page = {}
            self.disk_latency.add(page)
            if (histogram := page.get(WAL_FSYNC)) is not None:
                self._add(before, histogram)
                before = histogram
            await asyncio.sleep(SCRAPE_INTERVAL if self._probe is None else 2 * SCRAPE_INTERVAL)

    def _add(self, before: Histogram | None, histogram: Histogram) -> None:
        over = increase([before, histogram]) if before is not None else None
        if over is None:
            return
        if (reading := of_etcd(_now(), over, self._target)) is not None:
            self._etcd.append(reading)
        self._etcd_stalls = (self._etcd_stalls or 0.0) + above(ETCD_STALL, over)

    def _take(self) -> tuple[tuple[float, ...], float]:
        assert self._probe is not None
        try:
            taken = self._probe.take()
        except AgentError as error:
            self._miss(error.message)
            self._probe = None
            return (), 0.0
        return taken.latencies, taken.waiting

    def _miss(self, why: str) -> None:
        if why not in self.missing:
            self.missing.append(why)


@asynccontextmanager
async def open_sensors(protected: Protected) -> AsyncIterator[Sensors]:
    """Open all sensors that this host has. Raises nothing that the host can cause."""
    missing = list(protected.missing)
    async with AsyncExitStack() as stack:
        probe: FsyncProbe | None = None
        if protected.directory is not None:
            try:
                probe = await stack.enter_async_context(fsync_probe(protected.directory))
            except AgentError as error:
                missing.append(error.message)
        sensors = Sensors(probe, missing)
        if protected.scrape is None:
            yield sensors
            return
        task = asyncio.create_task(sensors.follow(protected.scrape))
        try:
            yield sensors
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _now() -> float:
    return asyncio.get_running_loop().time()
