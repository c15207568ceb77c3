# SPDX-License-Identifier: Apache-2.0
"""The queue of a disk: shaped, and put back exactly as it was found, whenever the agent is killed."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from nodeagent.errors import AgentError
from nodeagent.features.fence.actuators.block_queue import Queue, SysfsQueue, recover
from nodeagent.features.fence.decide.disks import BlockNode, DeviceNumber
from nodeagent.features.fence.decide.shape import Shape
from nodeagent.features.fence.restore_log import RestoreLog
from tests.features.fence.actuators.simulated_queue import SimulatedQueue

DISK = BlockNode(DeviceNumber(254, 0), "/dev/vda")
TIGHT = Shape(32, 1, "mq-deadline", priorities=True, wbt=False)
GENTLE = Shape(128, 16, "mq-deadline", priorities=True)


class Notes(RestoreLog):
    """A log in memory, which a killed agent leaves behind."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self.before: Callable[[], None] = lambda: None

    async def load(self) -> Mapping[str, str]:
        return dict(self.notes)

    async def save(self, key: str, note: str) -> None:
        self.before()
        self.notes[key] = note

    async def clear(self, key: str) -> None:
        self.before()
        self.notes.pop(key, None)


def found_without_scheduler() -> SimulatedQueue:
    return SimulatedQueue("none", 200)


def found_with_scheduler() -> SimulatedQueue:
    """Return a queue with a scheduler, tuned by the admin."""
    queue = SimulatedQueue("mq-deadline", 200)
    queue.write("nr_requests", "77")
    queue.write("iosched/read_expire", "123")
    queue.writes.clear()
    return queue


QUEUES = [found_without_scheduler, found_with_scheduler]
every_queue = pytest.mark.parametrize("make", QUEUES)


@every_queue
async def test_shaped_and_put_back(make: Callable[[], SimulatedQueue]) -> None:
    simulated, notes = make(), Notes()
    before = simulated.state
    queue = Queue(DISK, notes, simulated)
    await queue.apply(TIGHT)
    assert (simulated.max_sectors_kb, simulated.depth, simulated.scheduler) == (32, 4, "mq-deadline")
    assert simulated.wbt == "0"
    await queue.apply(GENTLE)
    assert (simulated.max_sectors_kb, simulated.depth, simulated.scheduler) == (128, 16, "mq-deadline")
    assert simulated.wbt == "75000"
    await queue.restore()
    assert simulated.state == before
    assert notes.notes == {}


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EINVAL])
async def test_a_kernel_without_writeback_throttling(code: int) -> None:
    class Without(SimulatedQueue):
        def read(self, name: str) -> str:
            if name == "wbt_lat_usec":
                raise OSError(code, os.strerror(code), name)
            return super().read(name)

    simulated = Without("none", 200)
    before = simulated.state
    queue = Queue(DISK, Notes(), simulated)
    await queue.apply(TIGHT)
    await queue.restore()
    assert simulated.state == before


async def test_a_note_of_an_agent_that_left_writeback_throttling_alone() -> None:
    """The agent was upgraded while the fence was active."""
    simulated, notes = found_without_scheduler(), Notes()
    before = simulated.state
    await Queue(DISK, notes, simulated).apply(GENTLE)
    (key, text), *_ = notes.notes.items()
    notes.notes[key] = json.dumps({name: value for name, value in json.loads(text).items() if name != "wbt"})
    await Queue(DISK, notes, simulated).restore()
    assert simulated.state == before
    assert notes.notes == {}


async def test_without_leave_the_scheduler_stays() -> None:
    simulated = found_without_scheduler()
    await Queue(DISK, Notes(), simulated).apply(Shape(32, 1))
    assert (simulated.max_sectors_kb, simulated.depth, simulated.scheduler) == (32, 4, "none")
    assert "scheduler" not in dict(simulated.writes)


async def test_without_leave_the_scheduler_that_is_there_is_not_left_for_a_moment() -> None:
    simulated, notes = found_with_scheduler(), Notes()
    before = simulated.state
    await Queue(DISK, notes, simulated).apply(Shape(32, 1))
    assert simulated.writes == [("max_sectors_kb", "32"), ("nr_requests", "1")]
    assert (simulated.requests, simulated.depth) == (4, 200)
    assert simulated.state != before
    simulated.writes.clear()
    assert await Queue(DISK, notes, simulated).restore() is None
    assert simulated.state == before
    assert "scheduler" not in dict(simulated.writes)


async def test_the_same_shape_again_writes_nothing() -> None:
    simulated = found_with_scheduler()
    queue = Queue(DISK, Notes(), simulated)
    await queue.apply(TIGHT)
    simulated.writes.clear()
    await queue.apply(TIGHT)
    assert simulated.writes == []


class Killed(BaseException):
    pass


class Fuse:
    """Blows at the n-th call, once: later callers are a new process."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


@every_queue
async def test_killed_at_every_call_it_is_put_back(make: Callable[[], SimulatedQueue]) -> None:
    for calls in range(1, 200):
        simulated, notes = make(), Notes()
        before, fuse = simulated.state, Fuse(calls)
        simulated.before = notes.before = fuse
        queue = Queue(DISK, notes, simulated)
        try:
            await queue._apply(TIGHT)  # without the task around it, through which a kill does not come
            await queue._apply(GENTLE)
            await queue._put_back()
        except Killed:
            await Queue(DISK, notes, simulated).restore()  # the next agent
        assert simulated.state == before, f"killed at call {calls}"
        assert notes.notes == {}
        if fuse.left > 0:
            assert calls > 20
            return
    pytest.fail("it never came to an end")


async def test_cancelled_it_is_finished_first() -> None:
    simulated, notes = found_with_scheduler(), Notes()
    before = simulated.state
    queue = Queue(DISK, notes, simulated)
    applying = asyncio.create_task(queue.apply(TIGHT))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    applying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await applying
    assert simulated.scheduler == "mq-deadline"
    assert simulated.max_sectors_kb == 32
    await queue.restore()
    assert simulated.state == before


async def test_another_disk_with_the_same_number_is_left_alone() -> None:
    simulated, notes = found_with_scheduler(), Notes()
    await Queue(DISK, notes, simulated).apply(TIGHT)
    other = SimulatedQueue("none", 32)
    other.sequence = "8"
    await Queue(DISK, notes, other).restore()
    assert other.writes == []
    assert notes.notes == {}


async def test_a_disk_that_is_gone(tmp_path: Path) -> None:
    simulated, notes = found_with_scheduler(), Notes()
    await Queue(DISK, notes, simulated).apply(TIGHT)
    assert await recover(notes, tmp_path) == ["254:0"]
    assert notes.notes == {}


async def test_what_the_kernel_does_not_take_back_is_said() -> None:
    simulated, notes = found_with_scheduler(), Notes()
    queue = Queue(DISK, notes, simulated)
    await queue.apply(TIGHT)
    simulated.write = lambda name, value: None  # type: ignore[method-assign]
    with pytest.raises(AgentError) as caught:
        await queue.restore()
    assert caught.value.reason == "QueueNotRestored"
    assert notes.notes, "the next start tries again"


async def test_a_note_that_cannot_be_read() -> None:
    notes = Notes()
    notes.notes["queue-254:0"] = "{"
    with pytest.raises(AgentError) as caught:
        await Queue(DISK, notes, found_with_scheduler()).restore()
    assert caught.value.reason == "QueueNotRestored"


@pytest.mark.parametrize("make", QUEUES)
async def test_facts(make: Callable[[], SimulatedQueue]) -> None:
    simulated = make()
    facts = await Queue(DISK, Notes(), simulated).facts()
    assert facts.scheduler == simulated.scheduler
    assert facts.schedulers == ("none", "mq-deadline", "bfq")
    assert (facts.max_sectors_kb, facts.nvme, facts.multipath) == (1280, False, False)
    nvme = BlockNode(DeviceNumber(259, 0), "/dev/nvme0n1", nvme_multipath=True)
    facts = await Queue(nvme, Notes(), simulated).facts()
    assert (facts.nvme, facts.multipath) == (True, True)


async def test_notes_outlive_the_process(tmp_path: Path) -> None:
    notes = RestoreLog(tmp_path / "run" / "fence")
    assert await notes.load() == {}
    await notes.save("queue-8:0", "one")
    await notes.save("queue-8:0", "two")
    await notes.save("unit-a@b.service", "three")
    assert await RestoreLog(tmp_path / "run" / "fence").load() == {"queue-8:0": "two", "unit-a@b.service": "three"}
    await notes.clear("queue-8:0")
    await notes.clear("queue-8:0")
    assert list(await notes.load()) == ["unit-a@b.service"]


async def test_a_read_only_sysfs_is_said(tmp_path: Path) -> None:
    class ReadOnly(SimulatedQueue):
        def write(self, name: str, value: str) -> None:
            raise OSError(30, "Read-only file system", name)

    notes = Notes()
    queue = Queue(DISK, notes, ReadOnly("none", 64))
    with pytest.raises(AgentError) as caught:
        await queue.apply(TIGHT)
    assert caught.value.reason == "ReadOnly"
    assert notes.notes == {}, "nothing to put back, now and at each start"


# -- a real queue -----------------------------------------------------------------------------------------------------


def depth_of(number: str) -> int | None:
    """Return the depth of the disk itself, which only debugfs shows. None if it does not."""
    name = Path(f"/sys/dev/block/{number}").resolve().name
    script = f"mount -t debugfs none /mnt && sed -n '/^bitmap_tags/,/depth/s/^depth=//p' /mnt/block/{name}/hctx0/tags"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=20)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else None


async def test_a_real_queue(loop_device: str, tmp_path: Path) -> None:
    real = SysfsQueue(loop_device)
    directory = Path(f"/sys/dev/block/{loop_device}/queue")
    if "mq-deadline" not in (directory / "scheduler").read_text():
        pytest.skip("this kernel has no mq-deadline")

    def state() -> list[str]:
        files = [directory / name for name in ("max_sectors_kb", "scheduler", "nr_requests", "wbt_lat_usec")]
        files = [file for file in files if file.exists()]  # kernels without writeback throttling
        return [f"{file.name}: {file.read_text().strip()}" for file in (*files, *sorted(directory.glob("iosched/*")))]

    for scheduler in ("none", "mq-deadline"):
        (directory / "scheduler").write_text(scheduler)
        before, depth = state(), depth_of(loop_device)
        notes = RestoreLog(tmp_path / "notes")
        major, _, minor = loop_device.partition(":")
        queue = Queue(BlockNode(DeviceNumber(int(major), int(minor)), "/dev/loop"), notes, real)
        await queue.apply(Shape(32, 1))
        assert "nr_requests: 4" in state()
        assert any(f"[{scheduler}]" in line for line in state())
        await queue.restore()
        assert state() == before
        assert depth_of(loop_device) == depth
        await queue.apply(TIGHT)
        shaped = state()
        assert "max_sectors_kb: 32" in shaped
        assert any("[mq-deadline]" in line for line in shaped)
        assert not (directory / "wbt_lat_usec").exists() or "wbt_lat_usec: 0" in shaped
        assert depth is None or depth_of(loop_device) == 4 < depth
        assert await recover(notes) == [loop_device]  # by number alone, as after a kill
        assert state() == before
        assert depth_of(loop_device) == depth
        assert await notes.load() == {}


def test_the_simulation_is_like_the_real_one(loop_device: str) -> None:
    real = SysfsQueue(loop_device)
    if "mq-deadline" not in real.read("scheduler") or not os.uname().release.startswith("6.18."):
        pytest.skip("the simulation is of Linux 6.18 with mq-deadline")
    real.write("scheduler", "none")
    simulated = SimulatedQueue("none", int(real.read("nr_requests")))
    for name, value in [
        ("nr_requests", "1"),
        ("scheduler", "mq-deadline"),
        ("nr_requests", "16"),
        ("scheduler", "none"),
        ("nr_requests", real.read("nr_requests")),
        ("scheduler", "mq-deadline"),
        ("scheduler", "none"),
        ("nr_requests", "100"),
        ("nr_requests", real.read("nr_requests")),
    ]:
        real.write(name, value)
        simulated.write(name, value)
        assert real.read("nr_requests") == simulated.read("nr_requests"), (name, value)
        assert depth_of(loop_device) in (simulated.depth, None), (name, value)
