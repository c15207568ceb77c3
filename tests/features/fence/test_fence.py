# SPDX-License-Identifier: Apache-2.0
"""The whole fence, over a private bus, a disk's attributes in files, and threads with I/O priorities in memory."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from nodeagent.errors import Retryable, Terminal
from nodeagent.features.fence import control_loop
from nodeagent.features.fence import fence as module
from nodeagent.features.fence.actuators.actuators import Actuators, SystemPaths, recover
from nodeagent.features.fence.actuators.block_queue import Queue
from nodeagent.features.fence.actuators.priorities import IDLE, REALTIME, IoPriority
from nodeagent.features.fence.blockdev.find import SYSROOT
from nodeagent.features.fence.decide.bounds import Bounds, Idle
from nodeagent.features.fence.decide.disks import BlockNode, DeviceNumber, Disks
from nodeagent.features.fence.decide.histogram import WAL_FSYNC
from nodeagent.features.fence.decide.view import FenceView
from nodeagent.features.fence.fence import ActiveFence, FenceOptions, fenced
from nodeagent.features.fence.reasons import FenceReason
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.features.fence.sensors import sensors
from nodeagent.features.fence.sensors.sensors import Protected
from nodeagent.host.c_library import c_library
from nodeagent.host.dbus.client import Bus
from tests.features.fence.fake_limits import CGROUP, DISK, OTHER, UNIT, Manager
from tests.support.fixtures import PrivateBus

QUEUE = {"max_sectors_kb": "1280", "scheduler": "none [mq-deadline]", "nr_requests": "256", "logical_block_size": "512"}
QUICK = Bounds(interval=0.01, settle=0.02, patience=0.05, wary=0.05, bold=0.05, stale=2.0)
FILESYSTEM = module._filesystem  # before it is replaced below
TERMS = FenceOptions(bounds=QUICK, idle=Idle(0.002048, 0.012))  # which lets it begin with 16 MB/s
UPDATER, VICTIM = 501, 502
PRIORITIES = {UPDATER: 0, VICTIM: 2 << 13 | 4}


class Threads(IoPriority):
    """Their priorities; ``denied`` as without CAP_SYS_NICE."""

    def __init__(self) -> None:
        self.values = dict(PRIORITIES)
        self.denied = False
        self.of = {pid: [pid] for pid in PRIORITIES}
        self.starts = {pid: f"{pid}.00" for pid in PRIORITIES}

    def get(self, thread: int) -> int:
        return self.values[thread]

    def threads(self, pid: int) -> list[int]:
        return self.of[pid]

    def started(self, pid: int) -> str:
        return self.starts[pid]

    def set(self, thread: int, value: int) -> None:
        if self.denied:
            raise PermissionError(1, "Operation not permitted")
        self.values[thread] = value


class Host:
    def __init__(self, directory: Path, bus: Bus, manager: Manager) -> None:
        self.bus = bus
        self.manager = manager
        self.restore_log = RestoreLog(directory / "restore_log")
        self.threads = Threads()
        self.queue = directory / "block/254:0/queue"
        self.cgroups = directory / "cgroup"
        self.data = directory / "data"
        self.data.mkdir()
        self.queue.mkdir(parents=True)
        for name, text in QUEUE.items():
            (self.queue / name).write_text(text)
        (self.cgroups / CGROUP.lstrip("/") / "cgroup.procs").write_text(f"{UPDATER}\n")
        self.system = SystemPaths(self.cgroups, directory / "block", self.threads)
        self.disks = Disks(DISK, (DISK,), ())
        self.theirs = self.disks
        self.slow = 0.0
        self.fast = 0.0
        self.views: list[FenceView] = []
        # Without our probe: how long an fsync takes on this machine is not for these tests to depend on.
        self.victim = Protected(None, self.scrape, lambda: [VICTIM])

    async def find(self, paths: Sequence[str]) -> Disks:
        return self.theirs if str(self.data) in paths else self.disks

    async def scrape(self) -> str:
        """All of them fast, or all slow."""
        self.fast += 100
        lines = (("0.008", self.fast), ("0.128", self.fast), ("+Inf", self.fast + self.slow))
        return "".join(f'{WAL_FSYNC}_bucket{{le="{le}"}} {count}\n' for le, count in lines)

    def fenced(self, options: FenceOptions = TERMS, unit: str = UNIT) -> AbstractAsyncContextManager[ActiveFence]:
        return fenced(
            unit,
            self.victim,
            bus=self.bus,
            restore_log=self.restore_log,
            options=options,
            emit=self.views.append,
            find=self.find,
            system=self.system,
        )

    def touched(self) -> dict[str, object]:
        """Return the values that differ from the original ones."""
        now = {name: (self.queue / name).read_text() for name in QUEUE}
        now["scheduler"] = (
            now["scheduler"].replace("none [mq-deadline]", "mq-deadline").replace("mq-deadline", "none [mq-deadline]")
        )
        found: dict[str, object] = {name: value for name, value in now.items() if value != QUEUE[name]}
        found |= {} if self.manager.io_max == "" else {"io.max": self.manager.io_max}
        found |= {"priorities": self.threads.values} if self.threads.values != PRIORITIES else {}
        notes = list((self.cgroups.parent / "restore_log").glob("*"))
        return found | ({"notes": notes} if notes else {})

    async def until(self, fence: ActiveFence, so: Callable[[FenceView], bool]) -> FenceView:
        await self.until_so(lambda: so(fence.view))
        return fence.view

    async def until_so(self, so: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not so():
                await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_loop, "INTERVAL", 0.02)
    monkeypatch.setattr(module, "METADATA_DELAY", 0.0)
    monkeypatch.setattr(module, "_filesystem", lambda _paths: ("xfs", "5.14.0"))
    monkeypatch.setattr(sensors, "SCRAPE_INTERVAL", 0.02)


@pytest.fixture
async def host(private_bus: PrivateBus, bus: Bus, tmp_path: Path) -> AsyncIterator[Host]:
    cgroups = tmp_path / "cgroup"
    (cgroups / CGROUP.lstrip("/")).mkdir(parents=True)
    (cgroups / "cgroup.controllers").write_text("cpu io memory\n")
    async with Manager(cgroups) as manager:
        await manager.start(private_bus.address)
        yield Host(tmp_path, bus, manager)


async def test_a_slice_is_limited_before_its_first_unit_exists(host: Host) -> None:
    """systemd rejects that for a transient service, which it does not know before its start."""
    host.manager.running, host.manager.unknown = False, {"pull.service", "system-pull.slice"}
    async with host.fenced(unit="pull.service") as fence:
        assert any("not found" in each for each in fence.view.missing)
    host.manager.kind = "Slice"
    async with host.fenced(unit="system-pull.slice") as fence:
        assert (fence.view.active, fence.view.missing) == (True, ())
        assert host.manager.lists["IOWriteIOPSMax"] == {"/dev/vda": 489}
    assert not host.manager.lists["IOWriteIOPSMax"]
    assert fence.left == []


async def test_it_is_up_for_a_block_and_leaves_no_trace(host: Host) -> None:
    async with host.fenced() as fence:
        assert fence.view.active
        assert fence.view.reason == "started"
        assert "wiops=489" in host.manager.io_max  # 16 MB/s in pieces of 32 KiB
        assert (host.queue / "max_sectors_kb").read_text() == "32"
        assert host.threads.values == {UPDATER: IDLE, VICTIM: REALTIME}
        view = await host.until(fence, lambda view: view.write_iops == 954)
        assert view.reason == "calm", "977 would be; less than a tenth is not worth a change"
        assert view.throttled > 0
        assert host.touched().keys() == {"io.max", "max_sectors_kb", "nr_requests", "priorities", "notes"}
    assert host.touched() == {}
    assert fence.left == []
    assert host.views[-1] == fence.view
    assert fence.disk_latency is not None
    spans = fence.disk_latency.summary()["wal_fsync"]
    assert (spans["before"]["samples"], spans["during"]["slow"]) == (100, 0)


async def test_what_was_written_reaches_the_disk_before_the_limits_go(host: Host) -> None:
    memory = host.cgroups / CGROUP.lstrip("/") / "memory.stat"
    memory.write_text(f"anon 5\nfile_dirty {6 << 20}\nfile_writeback {2 << 20}\n")

    async def stage() -> None:
        async with host.fenced():
            pass

    task = asyncio.create_task(stage())
    await host.until_so(lambda: "wiops" in host.manager.io_max)
    turns = len(host.views)
    await host.until_so(lambda: len(host.views) > turns + 5)
    assert "wiops" in host.manager.io_max, "and it goes on deciding"
    memory.write_text("file_dirty 4096\nfile_writeback 0\n")
    await task
    assert host.touched() == {}


async def test_pages_of_etcd_after_the_staging_are_a_span_of_their_own(host: Host) -> None:
    """Its last writes reach the disk while nothing is staged any more."""
    memory = host.cgroups / CGROUP.lstrip("/") / "memory.stat"
    memory.write_text(f"file_dirty {6 << 20}\n")
    fences: list[ActiveFence] = []

    async def stage() -> None:
        async with host.fenced() as fence:
            fences.append(fence)

    def spans() -> set[str]:
        latency = fences[0].disk_latency if fences else None
        return set() if latency is None else {*latency.summary().get("wal_fsync", {})}

    task = asyncio.create_task(stage())
    await host.until_so(lambda: "after" in spans())
    memory.write_text("file_dirty 0\n")
    await task
    assert spans() >= {"before", "after"}


async def test_the_rate_of_its_writes(host: Host) -> None:
    actuators = Actuators(host.bus, host.restore_log, UNIT, host.disks, lambda: [VICTIM], host.system, syncs=UNIT)

    def wrote(bytes_: int, place: str = CGROUP) -> None:
        text = f"8:16 wbytes=5\n{DISK.number} rbytes=7 wbytes={bytes_} rios=1 wios=1\n"
        (host.cgroups / place.lstrip("/") / "io.stat").write_text(text)

    async def rate_is_known(at_most: float) -> bool:
        rate = await actuators.write_rate()
        return rate is not None and 0 < rate <= at_most

    wrote(1000)
    assert await actuators.write_rate() is None, "nothing is limited, so there is no such file"
    actuators.limiting = True
    begun = asyncio.get_running_loop().time()
    assert await actuators.write_rate() is None, "there is nothing to compare with yet"
    wrote(5_001_000)
    await asyncio.sleep(0.01)
    rate = await actuators.write_rate()
    assert rate is not None
    assert 5e6 / (asyncio.get_running_loop().time() - begun) <= rate <= 5e6 / 0.01
    wrote(400)
    assert await actuators.write_rate() is None, "the count of a cgroup that was made again"
    (host.cgroups / CGROUP.lstrip("/") / "io.stat").unlink()
    moved = "/other.slice/rpm-ostreed.service"
    (host.cgroups / moved.lstrip("/")).mkdir(parents=True)
    host.manager.control_group = moved
    wrote(1000, moved)
    assert await actuators.write_rate() is None, "the unit is elsewhere since it was started again"
    assert await actuators.write_rate() is None
    wrote(2000, moved)
    await asyncio.sleep(0.01)
    assert await rate_is_known(at_most=1000 / 0.01)


async def test_queues_keep_their_shape_until_the_file_system_has_written_what_is_its_own(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "METADATA_DELAY", 3600.0)

    async def stage() -> None:
        async with host.fenced():
            pass

    task = asyncio.create_task(stage())
    await host.until_so(lambda: bool(host.views) and host.views[-1].message.startswith("done; the limits stay"))
    assert host.views[-1].active
    assert (host.queue / "max_sectors_kb").read_text() == "32"
    task.cancel()  # the agent is stopped
    await asyncio.wait({task}, timeout=20)
    assert task.cancelled()
    assert host.touched() == {}


@pytest.mark.parametrize("why", ["fast", "given up"])
async def test_without_them_there_is_no_wait(host: Host, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    monkeypatch.setattr(module, "METADATA_DELAY", 3600.0)
    bounds, idle = (QUICK, Idle(1e-4, 1e-3)) if why == "fast" else (replace(QUICK, deadline=0.1), TERMS.idle)
    async with asyncio.timeout(20), host.fenced(FenceOptions(bounds=bounds, idle=idle)) as fence:
        # Before the unit is limited there are no caps either.
        await host.until(fence, lambda view: _open(view) and (why == "fast" or view.reason == "deadline"))
    assert host.touched() == {}


def _open(view: FenceView) -> bool:
    return view.write_iops is None and view.write_bps is None


@pytest.mark.parametrize("how", ["too slow", "cancelled", "unknown"])
async def test_but_the_wait_is_bounded(host: Host, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "too slow":
        monkeypatch.setattr(module, "FLUSH_TIMEOUT", 0.2)
    text = "file_dirty some\n" if how == "unknown" else f"file_dirty {6 << 20}\n"
    (host.cgroups / CGROUP.lstrip("/") / "memory.stat").write_text(text)

    async def stage() -> None:
        async with host.fenced():
            await asyncio.sleep(3600 if how == "cancelled" else 0)

    task = asyncio.create_task(stage())
    await host.until_so(lambda: "wiops" in host.manager.io_max)
    begun = asyncio.get_running_loop().time()
    if how == "cancelled":
        task.cancel()
    await asyncio.wait({task}, timeout=20)
    assert task.cancelled() == (how == "cancelled")
    assert host.touched() == {}
    assert asyncio.get_running_loop().time() - begun < module.FLUSH_TIMEOUT or how == "too slow"


@pytest.mark.parametrize(
    ("filesystem", "bytes_", "syncs"), [("ext4", 3 << 20, True), ("ext4", 5, False), ("xfs", 3 << 20, False)]
)
async def test_what_is_dirty_goes_to_the_disk_where_others_wait_for_it(
    host: Host, monkeypatch: pytest.MonkeyPatch, filesystem: str, bytes_: int, *, syncs: bool
) -> None:
    memory = host.cgroups / CGROUP.lstrip("/") / "memory.stat"
    memory.write_text(f"file_dirty {bytes_}\n")
    synced: list[Sequence[str]] = []

    def sync(paths: Sequence[str]) -> None:
        synced.append(paths)
        memory.write_text("file_dirty 0\n")

    monkeypatch.setattr(module, "_filesystem", lambda _paths: (filesystem, "6.12.0"))
    monkeypatch.setattr(control_loop, "FLUSH_INTERVAL", 0.02)
    monkeypatch.setattr(control_loop, "_sync", sync)
    monkeypatch.setattr(module, "FLUSH_TIMEOUT", 0.0)
    async with host.fenced() as fence:
        await host.until(fence, lambda view: view.reason == "calm")
        await host.until_so(lambda: bool(synced) or not syncs)
    assert synced == ([SYSROOT] if syncs else [])
    assert host.touched() == {}


def test_a_file_system_is_synced_by_its_first_path_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    library = SimpleNamespace(syncfs=lambda directory: called.append(os.readlink(f"/proc/self/fd/{directory}")))
    monkeypatch.setattr(control_loop, "c_library", lambda: library)
    (tmp_path / "file").write_text("")
    before = len(os.listdir("/proc/self/fd"))
    control_loop._sync([str(tmp_path / "none"), str(tmp_path / "file"), str(tmp_path), "/"])
    control_loop._sync([str(tmp_path / "none")])
    assert called == [str(tmp_path)]
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_kernel_takes_it(tmp_path: Path) -> None:
    control_loop._sync([str(tmp_path)])
    assert c_library().syncfs(-1) == -1


def test_a_domain_without_executable_memory_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise OSError(errno.EACCES, "no executable memory")

    monkeypatch.setattr(control_loop, "c_library", refused)
    before = len(os.listdir("/proc/self/fd"))
    control_loop._sync([str(tmp_path)])
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_victim_that_suffers_closes_it(host: Host) -> None:
    async with host.fenced() as fence:
        await host.until(fence, lambda view: view.source == "etcd")
        host.slow = 7
        view = await host.until(fence, lambda view: view.reason == "stalled")
        assert view.message == "etcd: 7 of 107 fsyncs over 128 ms"
        assert view.write_iops == 245
        assert (view.write_bps, view.exceedances) == (245 * 32 * 1024, 7), "what that many pieces make"
    assert host.touched() == {}


def test_the_ground_is_of_the_first_path_that_is_there(tmp_path: Path) -> None:
    kind, kernel = FILESYSTEM((str(tmp_path / "sysroot"), "/proc", "/"))
    assert (kind, kernel) == ("proc", os.uname().release)
    assert FILESYSTEM((str(tmp_path / "none"),))[0] == ""


@pytest.mark.finding(
    "daemon: leftovers, daemon: no bug ends it",
    "A damaged restore log of the fence does not keep the agent from starting, and names of processes and mount "
    "points of any bytes do not switch the fence off.",
)
def test_names_of_mount_points_are_those_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_bytes(b"27 1 254:0 / / rw - ext4 /dev/vda rw\n33 27 0:33 / /home/u/\xff\x0c rw - fuse.x x rw\n")
    monkeypatch.setattr(module, "_MOUNTS", mounts)
    assert FILESYSTEM((str(tmp_path),))[0] == "ext4"


async def test_an_updater_that_starts_later_does_not_wait_for_its_priority(host: Host) -> None:
    tasks = host.cgroups / CGROUP.lstrip("/") / "cgroup.procs"
    tasks.write_text("")
    async with asyncio.timeout(4), host.fenced() as fence:  # less than the time between two looks
        await host.until(fence, lambda view: view.seconds > 0.1)
        assert host.threads.values == {UPDATER: 0, VICTIM: REALTIME}
        tasks.write_text(f"{UPDATER}\n")
        await host.until(fence, lambda _view: host.threads.values[UPDATER] == IDLE)
    assert host.touched() == {}


async def test_our_probe_waits_as_the_victim_does(host: Host) -> None:
    host.victim = replace(host.victim, directory=host.data)
    before = set(host.threads.values)
    async with host.fenced() as fence:
        await host.until(fence, lambda _view: len(host.threads.values) > len(before))
        (probe,) = host.threads.values.keys() - before
        assert threading.current_thread().native_id != probe
        assert Path(f"/proc/self/task/{probe}").exists()
        assert host.threads.values[probe] == REALTIME
        notes = "".join(path.read_text() for path in (host.cgroups.parent / "restore_log").glob("*"))
        assert str(probe) not in notes, "it goes with us: nothing is to be put back"
    assert host.threads.values == {**PRIORITIES, probe: REALTIME}


@pytest.mark.parametrize("how", ["error", "cancelled"])
async def test_it_goes_whatever_ends_the_block(host: Host, how: str) -> None:
    entered = asyncio.Event()

    async def stage() -> None:
        async with host.fenced():
            entered.set()
            if how == "error":
                raise Retryable("no registry")
            await asyncio.Event().wait()

    task = asyncio.create_task(stage())
    await entered.wait()
    if how == "cancelled":
        task.cancel()
    with pytest.raises(Retryable if how == "error" else asyncio.CancelledError):
        await task
    assert host.touched() == {}


async def test_a_second_cancellation_does_not_cut_the_end_short(host: Host) -> None:
    entered = asyncio.Event()

    async def stage() -> None:
        async with host.fenced():
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(stage())
    await entered.wait()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0.005)
    assert task.cancelled()
    assert host.touched() == {}


async def test_cancelled_while_the_idle_disk_is_measured(host: Host) -> None:
    async def stage() -> None:
        async with host.fenced(replace(TERMS, idle=None, baseline=60.0)):
            pytest.fail("it began")

    task = asyncio.create_task(stage())
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert host.touched() == {}


async def test_the_next_process_restores_what_a_kill_leaves(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async def killed(*_: object) -> None:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(module, "restore", killed)
        async with host.fenced():
            pass
    assert host.touched().keys() == {"io.max", "max_sectors_kb", "nr_requests", "priorities", "notes"}
    host.threads.values[777] = REALTIME  # A thread that etcd started in the meantime.
    host.threads.of[VICTIM].append(777)
    assert await recover(host.bus, host.restore_log, host.system) == (True, [])
    assert host.threads.values.pop(777) == PRIORITIES[VICTIM]
    assert host.touched() == {}
    assert await recover(host.bus, host.restore_log, host.system) == (False, [])


async def test_a_reused_number_is_left_alone(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async def killed(*_: object) -> None:
        return None

    with monkeypatch.context() as patch:
        patch.setattr(module, "restore", killed)
        async with host.fenced():
            pass
    host.threads.starts[UPDATER] = "999.00"
    assert await recover(host.bus, host.restore_log, host.system) == (True, [])
    assert host.threads.values == {UPDATER: IDLE, VICTIM: PRIORITIES[VICTIM]}


async def test_without_priorities_the_rest_is_done(host: Host) -> None:
    host.threads.denied = True
    async with host.fenced() as fence:
        assert fence.view.active
        assert any("I/O priority" in what for what in fence.view.missing)
        assert "wiops=489" in host.manager.io_max
    assert host.touched() == {}


@pytest.mark.parametrize(
    ("filesystem", "options"), [("ext4", TERMS), ("btrfs", TERMS), ("xfs", replace(TERMS, switch_scheduler=False))]
)
async def test_the_scheduler_is_switched_on_xfs_only(
    host: Host, monkeypatch: pytest.MonkeyPatch, filesystem: str, options: FenceOptions
) -> None:
    monkeypatch.setattr(module, "_filesystem", lambda _paths: (filesystem, "6.12.0"))
    before = (host.queue / "scheduler").read_text()
    async with host.fenced(options) as fence:
        await host.until(fence, lambda view: view.reason == "calm")
        assert (host.queue / "max_sectors_kb").read_text() == "32"
        assert (host.queue / "scheduler").read_text() == before
        assert host.threads.values == PRIORITIES
    assert host.touched() == {}


async def test_without_queues_bytes_are_counted(host: Host) -> None:
    (host.queue / "scheduler").write_text("[kyber] none")
    untouched = host.touched()
    async with host.fenced() as fence:
        assert "wbps=16000000" in host.manager.io_max
        assert (fence.view.write_bps, fence.view.write_iops) == (16_000_000, None)
        assert any("kyber" in what for what in fence.view.missing)
        assert host.touched().keys() == {"io.max", "notes", *untouched}
    assert host.touched() == untouched


async def test_a_fast_disk_is_left_alone(host: Host) -> None:
    async with host.fenced(replace(TERMS, idle=Idle(0.0005, 0.001))) as fence:
        assert fence.view.active
        assert (fence.view.write_bps, fence.view.write_iops) == (None, None)
        assert any("it is fast" in what for what in fence.view.missing)
        assert host.touched().keys() == {"notes"}
    assert host.touched() == {}


async def test_where_nothing_can_be_limited_the_block_runs_all_the_same(host: Host) -> None:
    (host.cgroups / "cgroup.controllers").write_text("cpu memory\n")
    (host.queue / "scheduler").write_text("[bfq]")
    async with host.fenced() as fence:
        assert not fence.view.active
        assert fence.view.reason == "NothingToLimit"
        assert "no cgroup v2 with an io controller" in fence.view.message
    assert host.manager.sent == []


async def test_a_victim_on_another_disk_needs_no_fence(host: Host) -> None:
    host.theirs = Disks(OTHER, (OTHER,), ())
    host.victim = replace(host.victim, directory=host.data)
    async with host.fenced() as fence:
        assert fence.view.reason == "OtherDisk"
        assert "/dev/sdb" in fence.view.message
    assert host.touched() == {}


async def test_no_disk_at_all(host: Host) -> None:
    async def none(_paths: Sequence[str]) -> Disks:
        raise Terminal("/: on no disk that is seen here", reason=FenceReason.NO_DISK)

    host.find = none  # type: ignore[method-assign]
    async with host.fenced() as fence:
        assert fence.view == FenceView(active=False, reason="NoDisk", message="/: on no disk that is seen here")


async def test_a_fault_of_ours_opens_everything(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async with host.fenced() as fence:
        monkeypatch.setattr(control_loop, "weigh", lambda *_: 1 / 0)
        view = await host.until(fence, lambda view: not view.active)
        assert (view.reason, view.message) == ("FenceFailed", "ZeroDivisionError: division by zero")
        assert host.touched() == {}


async def test_a_fault_of_ours_while_it_is_put_up_leaves_nothing_up(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limits that are set by then would stay."""
    monkeypatch.setattr(control_loop.ControlLoop, "begin", _hold_and_fail)
    async with host.fenced() as fence:
        assert (fence.view.active, fence.view.reason) == (False, "FenceFailed")
        assert host.touched() == {}
    assert fence.left == []


async def _hold_and_fail(self: control_loop.ControlLoop) -> None:
    await self._actuators.hold(self._state.decision.limits)
    raise ZeroDivisionError


async def test_one_fault_does_not_keep_the_rest_from_being_put_back(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_self: Queue) -> None:
        raise OSError("the disk is gone")

    async with host.fenced() as fence:
        monkeypatch.setattr(Queue, "restore", fail)
    assert fence.left == ["OSError: the disk is gone"]
    assert host.touched().keys() == {"max_sectors_kb", "nr_requests", "notes"}, "the queue alone"


async def test_the_idle_disk_is_measured_first(host: Host) -> None:
    host.victim = Protected(host.data)
    async with host.fenced(replace(TERMS, idle=None, baseline=0.0)) as fence:
        assert fence.idle is None
        assert fence.view.active
        await host.until(fence, lambda view: view.source == "probe")
    async with host.fenced(replace(TERMS, idle=None, baseline=6.0)) as fence:
        assert fence.idle is not None
        assert 0 < fence.idle.p50 <= fence.idle.p99
    assert host.touched() == {}


async def test_where_nothing_can_be_moved_nothing_is_measured(host: Host) -> None:
    (host.cgroups / "cgroup.controllers").write_text("cpu memory\n")
    shutil.rmtree(host.queue)
    async with asyncio.timeout(30), host.fenced(replace(TERMS, idle=None, baseline=300.0)) as fence:
        assert fence.view.reason == "NothingToLimit"


async def test_several_disks_that_are_not_alike(host: Host) -> None:
    other = BlockNode(DeviceNumber(8, 16), "/dev/sdb")
    queue = host.system.disks / "8:16/queue"
    queue.mkdir(parents=True)
    for name, text in (QUEUE | {"max_sectors_kb": "16"}).items():
        (queue / name).write_text(text)
    host.disks = host.theirs = Disks(DISK, (DISK, other), ())
    async with host.fenced() as fence:
        assert any("not alike" in what for what in fence.view.missing)
        assert "wbps=" in host.manager.io_max
    assert host.touched() == {}
