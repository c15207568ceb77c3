# SPDX-License-Identifier: Apache-2.0
"""The workload that the fence protects: etcd on this host, or one of the caller; and its latency.

The latency comes from the metrics of the workload and from a probe on its file system. Each source may be missing at
the start and may fail later. Then it returns no readings, which the controller expects, and the reason is in
``missing``. A separate task fetches the metrics, so that a slow page does not delay the others.

The modules that detect etcd are imported on first use, because most hosts have no etcd and never stage anything.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.errors import AgentError, Retryable
from nodeagent.features.fence.decide.bounds import Idle
from nodeagent.features.fence.decide.disk_latency import HISTOGRAMS, DiskLatency
from nodeagent.features.fence.decide.histogram import WAL_FSYNC, Histogram, above, increase, parse
from nodeagent.features.fence.decide.signals import ETCD_STALL, STALL, Reading, of_etcd, of_probe, target
from nodeagent.features.fence.decide.view import quantile_of
from nodeagent.features.fence.reasons import FenceReason
from nodeagent.features.fence.sensors.probe import FsyncProbe, ProbeSample, fsync_probe
from nodeagent.host.etcd.client import client_tls
from nodeagent.host.etcd.detect import DATA, DetectedMember, detect
from nodeagent.host.etcd.options import Options, metrics_urls
from nodeagent.host.etcd.processes import processes
from nodeagent.host.http import HttpFault, request

# Seconds between two pages of metrics, and twice that if the probe works as well: a page costs etcd more than the
# agent. With a longer interval, a slow page would leave the controller without a fresh reading. An idle member does
# some tens of fsyncs in this time.
SCRAPE_INTERVAL = 2.0
# Seconds for one page of metrics. etcd serves it from memory, so a longer wait means trouble.
TIMEOUT: Final = 3.0
# Appends per second of the probe while the limits are set: each costs a slow disk two or three requests.
_PACE = 4.0
# Seconds of the probe that are judged together: one second has too few samples to be strained.
_WINDOW = 3.0
# Seconds that the p99 in the status covers.
_RECENT = 60.0

Scrape = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Protected:
    """Each source of the latency may be missing. ``directory``: any directory on its file system, for the probe.
    ``scrape``: returns its metrics as text, with the names of etcd; raises ``AgentError``. ``pids``: returns its
    processes, for priorities; it may block. ``missing``: messages about sources that were not found."""

    directory: Path | None = None
    scrape: Scrape | None = None
    pids: Callable[[], Sequence[int]] = tuple
    missing: tuple[str, ...] = ()


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
        """Measure the fsyncs of the idle disk, which set the limit of a slow fsync. None without a probe."""
        if self._probe is None or not seconds:
            return None
        await asyncio.sleep(seconds)
        latencies, _waiting = self._take()
        p50, p99 = quantile_of(latencies, 0.5), quantile_of(latencies, 0.99)
        return None if p50 is None or p99 is None else Idle(p50, p99)

    def expect(self, idle: Idle | None) -> None:
        """Use this measurement, or the strictest target if it is None, and count stalls from now on."""
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
        now = loop_time()
        readings = self._etcd
        # The last one counts until it is stale, so that none is missed in a slow turn.
        self._etcd = readings[-1:]
        if self._probe is not None:
            latencies, waiting = self._take()
            self._stalls += sum(1 for latency in latencies if latency > STALL)
            self._taken.append((now, latencies))
            while self._taken and now - self._taken[0][0] > _RECENT:
                self._taken.popleft()
            recent = [latency for at, some in self._taken if now - at < _WINDOW for latency in some]
            reading = of_probe(now, recent, waiting, self._target)
            readings = readings if reading is None else [*readings, reading]
        return readings

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
        if (reading := of_etcd(loop_time(), over, self._target)) is not None:
            self._etcd.append(reading)
        self._etcd_stalls = (self._etcd_stalls or 0.0) + above(ETCD_STALL, over)

    def _take(self) -> ProbeSample:
        assert self._probe is not None
        try:
            return self._probe.take()
        except AgentError as error:
            self._miss(error.message)
            self._probe = None
            return ProbeSample((), 0.0)

    def _miss(self, message: str) -> None:
        if message not in self.missing:
            self.missing.append(message)


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


async def find_etcd(root: Path = Path("/")) -> Protected | None:
    """Return the member of etcd on this host; None if there is none."""
    member = await asyncio.to_thread(detect, root)
    if member is None:
        return None
    directory = await asyncio.to_thread(_data_of, member, root)
    missing: tuple[str, ...] = () if directory else ("the directory of etcd's data is not known",)
    scrape: Scrape | None = None
    try:
        scrape = await etcd_metrics(member.options)
    except AgentError as error:
        missing += (f"etcd's metrics: {error.message}",)
    # The processes are found at each call, because etcd may be restarted during a staging.
    return Protected(directory, scrape, lambda: _members(root), missing)


def _members(root: Path) -> Sequence[int]:
    """Return the processes of the member, without those of ordinary users.

    They get the real-time class of I/O, which starves all other users of the disk.
    """
    return [process.pid for process in processes(root) if process.is_of_the_system]


async def etcd_metrics(options: Options) -> Scrape:
    """Return a function that fetches the metrics from the first address that replies, with the certificates of etcd.

    ``Retryable`` (``NoMetrics``) if none replies, ``Unreachable`` (``EtcdCredentials``) if a certificate is unreadable.
    """
    urls = metrics_urls(options)
    tls = None
    if any(url.startswith("https:") for url in urls):
        tls = await asyncio.to_thread(client_tls, options)
    last: Retryable | None = None
    # Which address has the metrics depends on two options and the version, so each one is tried.
    for url in urls:
        try:
            await _page(url, tls)
        except Retryable as error:
            # The first address is the one of the options, so its error explains more than those of the guesses.
            last = last or error
        else:
            return lambda url=url: _page(url, tls)  # type: ignore[misc]
    raise last or Retryable("no address is known", reason=FenceReason.NO_METRICS)


async def _page(url: str, tls: ssl.SSLContext | None) -> str:
    try:
        answer = await request("GET", url, tls=tls, timeout=TIMEOUT)
    except HttpFault as error:
        raise Retryable(f"{url}: {error}", reason=FenceReason.NO_METRICS) from error
    if answer.status != 200:
        raise Retryable(f"{url}: status {answer.status}", reason=FenceReason.NO_METRICS)
    return answer.body.decode(errors="replace")


def _data_of(member: DetectedMember, root: Path) -> Path | None:
    """Return the data directory. Its option may not be readable, so the usual places are tried as well."""
    option = member.options.get("data-dir")
    for path in (*([Path(option)] if option else []), *(root / place for place in DATA)):
        with suppress(OSError):
            if path.is_dir():
                return path
    return None


def loop_time() -> float:
    """Return the steady time of the running loop."""
    return asyncio.get_running_loop().time()
