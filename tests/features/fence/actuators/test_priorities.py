# SPDX-License-Identifier: Apache-2.0
"""I/O priorities of real threads. What only a privileged process may set is in ``test_fence``, in memory."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.errors import AgentError
from nodeagent.features.fence.actuators.priorities import IDLE, KEY, IoPriority, Priorities
from nodeagent.features.fence.restore_log import RestoreLog

THREADS = "import threading\nfor _ in range(3): threading.Thread(target=input).start()"
# A process chooses its name itself, and it is a part of /proc/PID/stat.
NAME = r"open('/proc/self/comm', 'wb').write(b'\xff) \xfe 1')"


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", f"{NAME}\n{THREADS}\nprint(flush=True)"], stdin=-1, stdout=-1
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.kill()


def priorities(pid: int) -> set[int]:
    threads = [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    assert len(threads) == 4
    return {IoPriority().get(thread) for thread in threads}


@pytest.mark.finding(
    "daemon: leftovers, daemon: no bug ends it",
    "A damaged restore log of the fence does not keep the agent from starting, and names of processes and mount "
    "points of any bytes do not switch the fence off.",
)
async def test_all_threads_and_back(process: int, tmp_path: Path) -> None:
    restore_log = RestoreLog(tmp_path / "restore_log")
    before = await asyncio.to_thread(priorities, process)
    held = Priorities(restore_log)
    await held.hold([process], [])
    await held.hold([process], [])
    assert await asyncio.to_thread(priorities, process) == {IDLE}
    await Priorities(restore_log).restore()
    assert await asyncio.to_thread(priorities, process) == before
    assert await restore_log.load() == {}


async def test_a_process_that_has_ended(process: int, tmp_path: Path) -> None:
    restore_log = RestoreLog(tmp_path / "restore_log")
    held = Priorities(restore_log)
    await held.hold([process], [])
    os.kill(process, signal.SIGKILL)
    os.waitid(os.P_PID, process, os.WEXITED)
    await held.hold([process], [])
    await held.restore()
    assert await restore_log.load() == {}


@pytest.mark.parametrize("note", ["{", "[]", '{"x": {}}', '{"1": 2}'])
async def test_a_note_that_cannot_be_read(tmp_path: Path, note: str) -> None:
    restore_log = RestoreLog(tmp_path / "restore_log")
    await restore_log.save(KEY, note)
    with pytest.raises(AgentError, match="cannot be read"):
        await Priorities(restore_log).restore()
    assert KEY in await restore_log.load()
