# SPDX-License-Identifier: Apache-2.0
"""When the file is written, which values outlive a restart, and that a failure delays nothing."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from nodeagent.agent.report import metrics as module
from nodeagent.agent.report.metrics import Metrics
from nodeagent.agent.report.report import Report
from nodeagent.errors import Terminal
from nodeagent.host.clock import SystemClock
from nodeagent.report.status import Status
from nodeagent.update.ports.events import DaemonStarted, PhaseEntered, UpdateContext, UpdateWaiting
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.states import Phase
from tests.world import FakeStore, World

STARTED = DaemonStarted("1.2.3")
WAITING = UpdateWaiting(UpdateContext(Phase.LEASING), "jane has it", "LeaseHeld")
AT = "2026-03-01T10:00:00.000Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.prom"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.0)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Warnings in the log."""
    lines: list[str] = []
    monkeypatch.setattr(module.log, "get", lambda _: Said(lines))
    return lines


class Said:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def warning(self, message: str, **_: object) -> None:
        self._lines.append(message)


class NewestFirst(FakeStore):
    """The order of the real store."""

    async def history(self, limit: int) -> Sequence[HistoryEntry]:
        return self.world.history[: -limit - 1 : -1]


@asynccontextmanager
async def running(world: World, path: str) -> AsyncIterator[tuple[Metrics, Report]]:
    """Run the metrics as the daemon does: a sink of the report, and a task that ends with the daemon."""
    metrics, report = Metrics(NewestFirst(world), SystemClock(), path), Report(Status())
    report.add(metrics.sink)
    task = asyncio.create_task(metrics.run())
    try:
        yield metrics, report
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def value(path: Path, name: str, **labels: str) -> float | None:
    if not path.exists():
        return None
    every = [sample for family in parsed(path.read_text()) for sample in family.samples]
    return next((each.value for each in every if each.name == name and each.labels == labels), None)


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(240):
        while not what():
            await asyncio.sleep(0.01)


def ended(update: str, outcome: str = "done") -> HistoryEntry:
    return HistoryEntry(update, "a", "b", AT, AT, outcome, "restart", 0, outcome == "done", 3.0)


async def test_it_is_written_on_an_event_and_goes_with_the_daemon(world: World, path: Path) -> None:
    async with running(world, str(path)) as (_, report):
        assert not path.exists()
        report.emit(STARTED)
        await until(path.exists)
        assert value(path, "nodeagent_phase", phase="Idle") == 1
    assert not path.exists()


@pytest.mark.usefixtures("at_once")
async def test_an_update_counts_when_the_status_shows_its_end(world: World, path: Path) -> None:
    def done() -> float | None:
        return value(path, "nodeagent_updates_total", outcome="done")

    world.history.append(ended("u-1"))
    async with running(world, str(path)) as (_, report):
        report.emit(PhaseEntered(UpdateContext(Phase.RELEASING, update_id="u-1")))
        await until(lambda: done() is not None)
        assert done() == 0
        report.emit(PhaseEntered(UpdateContext(Phase.IDLE)))
        await until(lambda: done() == 1)


@pytest.mark.usefixtures("at_once")
async def test_counters_go_on_after_a_restart(world: World, path: Path) -> None:
    def done() -> float | None:
        return value(path, "nodeagent_updates_total", outcome="done")

    world.history.append(ended("1"))
    async with running(world, str(path)) as (_, report):
        report.emit(STARTED)
        await until(lambda: done() == 1)
        world.history.append(ended("2"))
        report.emit(PhaseEntered(UpdateContext(Phase.RELEASING)))
        await until(lambda: done() == 2)
    async with running(world, str(path)) as (_, report):
        report.emit(STARTED)
        await until(lambda: done() is not None)
        assert done() == 2


@pytest.mark.looptime
async def test_at_most_once_a_second_and_the_last_word_counts(
    world: World, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    loop = asyncio.get_running_loop()
    written: list[tuple[float, str]] = []
    monkeypatch.setattr(module, "TextFile", lambda _: Recorder(written, loop))
    monkeypatch.setattr(asyncio, "to_thread", directly)
    async with running(world, str(path)) as (_, report):
        for number in range(35):  # every tenth of a second
            report.emit(PhaseEntered(UpdateContext(Phase.LEASING), reason=f"R{number}"))
            await asyncio.sleep(0.1)
        await asyncio.sleep(100)
    times = [at for at, _ in written]
    assert len(times) == 5
    assert all(later - before >= 1.0 for before, later in itertools.pairwise(times))
    assert 'reason="R34"' in written[-1][1]
    assert times[-1] - times[0] < 6, "nothing is written while nothing happens"


class Recorder:
    path = "recorded"

    def __init__(self, written: list[tuple[float, str]], loop: asyncio.AbstractEventLoop) -> None:
        self._written = written
        self._loop = loop

    def write(self, text: str) -> None:
        self._written.append((self._loop.time(), text))

    def remove(self) -> None:
        pass


async def directly(work: Callable[..., object], *args: object) -> object:
    return work(*args)


@pytest.mark.usefixtures("at_once")
async def test_another_file_from_a_reload_on(world: World, path: Path, tmp_path: Path) -> None:
    async with running(world, str(path)) as (metrics, report):
        report.emit(STARTED)
        await until(path.exists)
        other = tmp_path / "other.prom"
        await metrics.use(str(other))
        await until(lambda: other.exists() and not path.exists())
        await metrics.use("")
        await until(lambda: not other.exists())
    async with running(world, "") as (metrics, report):
        report.emit(STARTED)
        await metrics.use(str(path))
        await until(path.exists)


@pytest.mark.usefixtures("at_once")
async def test_a_file_that_cannot_be_written_is_said_once_and_tried_again(
    world: World, tmp_path: Path, said: list[str]
) -> None:
    path = tmp_path / "late" / "metrics.prom"
    async with running(world, str(path)) as (_, report):
        report.emit(STARTED)
        await until(lambda: bool(said))
        for _ in range(3):
            report.emit(STARTED)
            await asyncio.sleep(0.02)
        path.parent.mkdir()
        report.emit(STARTED)
        await until(path.exists)
    assert said == [f"no metrics in {path}: No such file or directory"]


@pytest.mark.usefixtures("at_once")
async def test_an_update_that_ends_while_the_history_is_read(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries, reading, go_on = [ended("1")], asyncio.Event(), asyncio.Event()

    async def history(self: FakeStore, limit: int) -> list[HistoryEntry]:
        found = entries[::-1][:limit]
        reading.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(NewestFirst, "history", history)
    async with running(world, str(path)) as (_, report):
        report.emit(STARTED)
        await reading.wait()
        entries.append(ended("2"))
        report.emit(PhaseEntered(UpdateContext(Phase.RELEASING)))
        go_on.set()
        await until(lambda: value(path, "nodeagent_updates_total", outcome="done") == 2)


@pytest.mark.usefixtures("at_once")
async def test_a_store_that_does_not_answer_is_not_what_stops_the_agent(
    world: World, path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True

    async def history(self: FakeStore, limit: int) -> list[HistoryEntry]:
        if broken:
            raise Terminal("disk I/O error", reason="StoreFailed")
        return [ended("1")][:limit]

    monkeypatch.setattr(NewestFirst, "history", history)
    async with running(world, str(path)) as (_, report):
        report.emit(STARTED)
        await until(lambda: bool(said))
        broken = False
        report.emit(WAITING)
        await until(lambda: value(path, "nodeagent_updates_total", outcome="done") == 1)
    assert said == [f"no metrics in {path}: disk I/O error"]
