"""Pressure of a cgroup: the kernel's own, where this machine measures it."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.errors import AgentError
from nodeagent.fence.sensors.pressure import pressure

pytestmark = pytest.mark.usefixtures("no_leaked_fds")


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
        assert watched.share() == 0.0


async def test_a_cgroup_that_goes_away(cgroup: Path) -> None:
    async with pressure(cgroup / "io.pressure") as watched:
        cgroup.rmdir()
        with pytest.raises(AgentError) as caught:
            watched.share()
        assert caught.value.reason == "NoPressure"


class Counter:
    """A file that counts like that of the kernel."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.add(0)

    def add(self, total: int) -> None:
        full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=999999999\n"
        self.file.write_text(f"some avg10=1.00 avg60=0.00 avg300=0.00 total={total}\n{full}")


@pytest.fixture
def counter(tmp_path: Path) -> Counter:
    return Counter(tmp_path / "io.pressure")


async def test_the_share_is_that_since_the_last_question(counter: Counter) -> None:
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
