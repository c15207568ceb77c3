"""Pressure of a cgroup: the kernel's own, where this machine measures it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.errors import AgentError
from nodeagent.fence.sensors.pressure import pressure

CPU = Path("/proc/pressure/cpu")
"""Of the processors, because tests can make it at will; the file and its triggers are the same as those of I/O."""
WINDOW = 2.0

pytestmark = pytest.mark.usefixtures("no_leaked_fds")


def measured() -> bool:
    try:
        return bool(CPU.read_text())
    except OSError:
        return False


needs_psi = pytest.mark.skipif(not measured(), reason="this kernel measures no pressure (psi=1)")
BUSY = "import time\nend = time.monotonic() + 5\nwhile time.monotonic() < end: pass"


@pytest.fixture
def crowd() -> Iterator[None]:
    """More busy processes than processors, for at most five seconds."""
    count = (os.cpu_count() or 1) + 1
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    yield
    for process in processes:
        process.kill()
        process.wait()


@needs_psi
async def test_a_trigger_wakes_once_in_a_window(crowd: None) -> None:
    async with pressure(CPU, stall=0.02, window=WINDOW) as watched:
        if not watched.triggered:
            pytest.skip("no trigger may be set here")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert await watched.strained(deadline=10)
        assert await watched.strained(deadline=10)
        passed = loop.time() - begun
        assert passed > WINDOW / 2
        assert watched.wakes <= passed / WINDOW + 2, "the loop spins"
        assert watched.share() > 0


@needs_psi
async def test_the_deadline_of_a_calm_trigger() -> None:
    async with pressure(CPU, stall=WINDOW, window=WINDOW) as watched:
        assert not await watched.strained(deadline=0.1)
        assert watched.wakes == 0


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """One of our own, without a process in it."""
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if os.geteuid() == 0 and (root / "cgroup.controllers").exists() and (root / "io.pressure").exists():
            directory = root / f"nodeagent-test-{uuid.uuid4().hex[:8]}"
            directory.mkdir()
            yield directory
            if directory.exists():
                directory.rmdir()
            return
    pytest.skip("needs root and a cgroup v2 with pressure")


async def test_a_cgroup_without_tasks_waits_for_nothing(cgroup: Path) -> None:
    async with pressure(cgroup / "io.pressure") as watched:
        assert not await watched.strained(deadline=0.05)
        assert watched.share() == 0.0


async def test_a_cgroup_that_goes_away(cgroup: Path) -> None:
    async with pressure(cgroup / "io.pressure") as watched:
        assert watched.triggered
        waiting = asyncio.create_task(watched.strained(deadline=10))
        await asyncio.sleep(0.01)
        cgroup.rmdir()
        with pytest.raises(AgentError) as caught:
            await waiting
        assert caught.value.reason == "NoPressure"
        wakes = watched.wakes
        await asyncio.sleep(0.05)
        assert watched.wakes == wakes, "the loop spins"
        with pytest.raises(AgentError) as caught:
            watched.share()
        assert caught.value.reason == "NoPressure"


class Counter:
    """A file that counts like the kernel's, and takes no triggers: what a plain file does with the first write."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.add(0)

    def add(self, total: int) -> None:
        full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=999999999\n"
        self.file.write_text(f"some avg10=1.00 avg60=0.00 avg300=0.00 total={total}\n{full}")


@pytest.fixture
def counter(tmp_path: Path) -> Counter:
    return Counter(tmp_path / "io.pressure")


def not_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under ProtectControlGroups=; root may write to any plain file."""
    real = os.open

    def open_read_only(path: Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_RDWR and str(path).endswith("io.pressure"):
            raise OSError(30, "Read-only file system", str(path))
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_read_only)


async def test_without_a_trigger_it_is_looked_at(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    not_writable(monkeypatch)
    monkeypatch.setattr("nodeagent.fence.sensors.pressure._LOOK", 0.02)
    async with pressure(counter.file, stall=0.2, window=2.0) as watched:
        assert not watched.triggered
        assert not await watched.strained(deadline=0.05)
        waiting = asyncio.create_task(watched.strained(deadline=10))
        await asyncio.sleep(0.03)
        counter.add(5_000_000)
        assert await waiting


async def test_the_share_is_that_since_the_last_question(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    not_writable(monkeypatch)
    async with pressure(counter.file) as watched:
        await asyncio.sleep(0.1)
        counter.add(25_000)
        assert 0.01 < watched.share() <= 0.25
        await asyncio.sleep(0.01)
        assert watched.share() == 0.0
        counter.add(10_000_000)
        assert watched.share() == 1.0


async def test_no_pressure_is_measured(tmp_path: Path) -> None:
    with pytest.raises(AgentError) as caught:
        async with pressure(tmp_path / "io.pressure"):
            pass
    assert caught.value.reason == "NoPressure"


async def test_pressure_is_turned_off(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    def off(path: Path, flags: int) -> int:
        raise OSError(95, "Operation not supported", str(path))

    monkeypatch.setattr(os, "open", off)
    with pytest.raises(AgentError, match="psi=1") as caught:
        async with pressure(counter.file):
            pass
    assert caught.value.reason == "NoPressure"
