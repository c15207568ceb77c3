# SPDX-License-Identifier: Apache-2.0
"""The probe on a real file system; the tests decide how long a sync takes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from nodeagent.errors import AgentError
from nodeagent.features.fence.sensors import probe as module
from nodeagent.features.fence.sensors.probe import FsyncProbe, fsync_probe

pytestmark = pytest.mark.usefixtures("no_leaked_fds")


class Disk:
    """Counts the syncs, and delays them on request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.free = threading.Event()
        self.free.set()
        self.error: OSError | None = None
        self._real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, fd: int) -> None:
        self.syncs += 1
        if self.error is not None:
            raise self.error
        self.free.wait(20)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def syncs(disk: Disk, more: int) -> None:
    until = disk.syncs + more
    async with asyncio.timeout(20):
        while disk.syncs < until:
            await asyncio.sleep(0.005)


async def test_on_a_real_file_system(tmp_path: Path) -> None:
    async with fsync_probe(tmp_path, rate=200) as probe:
        latencies: tuple[float, ...] = ()
        async with asyncio.timeout(20):
            while len(latencies) < 5:
                await asyncio.sleep(0.01)
                latencies += probe.take().latencies
        assert all(0 < seconds < 20 for seconds in latencies)
        assert list(tmp_path.iterdir()) == [], "it has no name"
    assert not any(thread.name == "fsync-probe" for thread in threading.enumerate())


async def test_a_stall_counts_for_all_that_were_due(disk: Disk, tmp_path: Path) -> None:
    async with fsync_probe(tmp_path, rate=100) as probe:
        await syncs(disk, 2)
        disk.free.clear()
        await syncs(disk, 1)
        probe.take()
        before = disk.syncs
        await asyncio.sleep(0.3)
        probed = probe.take()
        assert probed.latencies == ()
        assert probed.waiting > 0.25
        disk.free.set()
        await syncs(disk, 2)
        latencies = probe.take().latencies
        # One was under way, those of 0.3 s became due: all of them with their own wait, in one sync.
        assert sum(seconds > 0.02 for seconds in latencies) >= 20
        assert max(latencies) > 0.25
        assert len(latencies) >= disk.syncs - before + 15


async def test_nothing_is_waiting_between_two_appends(disk: Disk, tmp_path: Path) -> None:
    async with fsync_probe(tmp_path, rate=1) as probe:
        async with asyncio.timeout(10):
            while not (probed := probe.take()).latencies:
                await asyncio.sleep(0.005)
        assert probed.waiting == 0.0 or probed.waiting < 0.5
        await asyncio.sleep(0.05)
        assert probe.take().waiting == 0.0


async def test_its_pace_can_be_changed(disk: Disk, tmp_path: Path) -> None:
    async with fsync_probe(tmp_path, rate=200) as probe:
        await syncs(disk, 5)
        probe.pace(0.01)
        await asyncio.sleep(0.1)  # for what was due by the old one
        before = disk.syncs
        await asyncio.sleep(0.3)
        assert disk.syncs == before


async def test_it_writes_where_nothing_was_written(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of its space the probe begins again, in space that is allocated again."""
    monkeypatch.setattr(module, "_SEGMENT", 5000)
    written: list[int] = []
    allocated: list[int] = []
    pwrite, fallocate = os.pwrite, os.posix_fallocate

    def noted(fd: int, data: bytes, offset: int) -> int:
        written.append(offset)
        return pwrite(fd, data, offset)

    def noted_too(fd: int, offset: int, length: int) -> None:
        allocated.append(length)
        fallocate(fd, offset, length)

    monkeypatch.setattr(os, "pwrite", noted)
    monkeypatch.setattr(os, "posix_fallocate", noted_too)
    async with fsync_probe(tmp_path, rate=500):
        async with asyncio.timeout(20):
            while len(written) < 5:
                await asyncio.sleep(0.005)
    assert written[:5] == [0, 2300, 0, 2300, 0]
    assert len(allocated) >= 3
    assert set(allocated) == {5000}


async def test_a_disk_that_fails_is_said(disk: Disk, tmp_path: Path) -> None:
    async with fsync_probe(tmp_path, rate=100) as probe:
        disk.error = OSError(5, "Input/output error")
        await syncs(disk, 1)
        with pytest.raises(AgentError) as caught:
            async with asyncio.timeout(10):
                while True:
                    probe.take()
                    await asyncio.sleep(0.005)
        assert caught.value.reason == "DiskFault"


async def test_a_sync_that_hangs_does_not_hold_us_up(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_JOIN_TIMEOUT", 0.05)
    async with fsync_probe(tmp_path, rate=100) as probe:
        await syncs(disk, 1)
        disk.free.clear()
        await syncs(disk, 1)
        begun = time.monotonic()
    assert time.monotonic() - begun < 5
    disk.free.set()
    thread = probe._thread
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive(), "it ends, and closes its file, when the disk lets it"


async def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(AgentError) as caught:
        async with fsync_probe(tmp_path):
            pass
    assert caught.value.reason == "NoSpace"
    assert list(tmp_path.iterdir()) == []


async def test_a_file_system_without_nameless_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refusing(path: Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refusing)
    async with fsync_probe(tmp_path):
        assert list(tmp_path.iterdir()) == []


async def test_unread_samples_are_bounded(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "f", os.O_WRONLY | os.O_CREAT)
    probe = FsyncProbe(tmp_path, fd, 10)
    probe._latencies.extend([0.1] * 100_000)
    assert len(probe.take().latencies) == 4096
    os.close(fd)


async def test_no_such_directory(tmp_path: Path) -> None:
    with pytest.raises(AgentError):
        async with fsync_probe(tmp_path / "none"):
            pass
