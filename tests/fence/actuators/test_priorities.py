"""I/O priorities of real threads. What only a privileged process may set is in ``test_fence``, in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nodeagent.errors import AgentError
from nodeagent.fence.actuators.priorities import IDLE, KEY, Priorities, SystemIoPriority
from nodeagent.fence.restore_log import FileUndo

THREADS = "import threading\nfor _ in range(3): threading.Thread(target=input).start()"


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", f"{THREADS}\nprint(flush=True)"], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.kill()


def priorities(pid: int) -> set[int]:
    threads = [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    assert len(threads) == 4
    return {SystemIoPriority().get(thread) for thread in threads}


async def test_all_threads_and_back(process: int, tmp_path: Path) -> None:
    undo = FileUndo(tmp_path / "undo")
    before = priorities(process)
    held = Priorities(undo)
    await held.hold([process], [])
    await held.hold([process], [])
    assert priorities(process) == {IDLE}
    assert psutil.Process(process).ionice().ioclass == psutil.IOPRIO_CLASS_IDLE
    await Priorities(undo).restore()
    assert priorities(process) == before
    assert await undo.load() == {}


async def test_a_process_that_has_ended(process: int, tmp_path: Path) -> None:
    undo = FileUndo(tmp_path / "undo")
    held = Priorities(undo)
    await held.hold([process], [])
    psutil.Process(process).kill()
    psutil.Process(process).wait()
    await held.hold([process], [])
    await held.restore()
    assert await undo.load() == {}


@pytest.mark.parametrize("note", ["{", "[]", '{"x": {}}', '{"1": 2}'])
async def test_a_note_that_cannot_be_read(tmp_path: Path, note: str) -> None:
    undo = FileUndo(tmp_path / "undo")
    await undo.save(KEY, note)
    with pytest.raises(AgentError, match="cannot be read"):
        await Priorities(undo).restore()
    assert KEY in await undo.load()
