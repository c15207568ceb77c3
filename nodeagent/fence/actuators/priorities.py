"""I/O priorities of tasks: the updater's in the idle class, the victim's in the real-time class, and back.

ioprio_set(2) is of a thread. One that is started later has the class of the one that started it, so who looks again
from time to time misses none for long, and a thread that is not in the note goes back to what its process had. What is
found is noted before the first change: a victim that stays real-time after a kill of ours would be for good.

``ctypes``: the C library has no name for these calls, and psutil's are of processes. What may not be set (no
CAP_SYS_NICE, a process of another user namespace) is ``Terminal`` (``PermissionDenied`` or ``Immutable``).
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import platform
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from nodeagent.core.config.text import plain_json
from nodeagent.errors import Terminal
from nodeagent.fence.restore_log import RestoreLog
from nodeagent.host.fs.os_errors import fault

__all__ = ["IDLE", "REALTIME", "IoPriority", "Priorities", "SystemIoPriority"]

KEY = "ioprio"
_CLASS_SHIFT = 13
REALTIME = 1 << _CLASS_SHIFT | 4
"""In the middle: the kernel's default of each class."""
IDLE = 3 << _CLASS_SHIFT | 7
_WHO_THREAD = 1  # IOPRIO_WHO_PROCESS, which means a thread
_NUMBERS = {  # get, set: asm/unistd.h of each
    "x86_64": (252, 251),
    "aarch64": (31, 30),
    "ppc64le": (274, 273),
    "s390x": (283, 282),
}
_START = 22 - 3  # starttime, in what follows the name in proc_pid_stat(5)


class IoPriority(Protocol):
    """Of one thread; blocking. ``OSError`` as the kernel has it: ESRCH for one that ended."""

    def get(self, thread: int) -> int: ...

    def set(self, thread: int, value: int) -> None: ...


class SystemIoPriority:
    def get(self, thread: int) -> int:
        return _call(0, _WHO_THREAD, thread)

    def set(self, thread: int, value: int) -> None:
        _call(1, _WHO_THREAD, thread, value)


class Priorities:
    """``hold`` as often as anybody likes, ``restore`` at the end; by whoever comes after a kill, too."""

    def __init__(self, restore_log: RestoreLog, kernel: IoPriority | None = None, proc: Path = Path("/proc")) -> None:
        self._restore_log = restore_log
        self._kernel = kernel or SystemIoPriority()
        self._proc = proc
        self._note: dict[str, Any] | None = None

    async def hold(self, idle: Iterable[int], realtime: Iterable[int]) -> None:
        """All threads of these processes; what has ended is passed over."""
        wanted = {**dict.fromkeys(realtime, REALTIME), **dict.fromkeys(idle, IDLE)}
        if self._note is None:
            self._note = await self._load()
        found, todo = await asyncio.to_thread(self._look, wanted, self._note)
        if found != self._note:
            await self._restore_log.save(KEY, json.dumps(found))
            self._note = found
        await asyncio.to_thread(self._set, todo)

    async def raise_own(self, thread: int) -> None:
        """Our own probe waits as the victim does. Not noted: the thread goes with us."""
        await asyncio.to_thread(self._set, {thread: REALTIME})

    async def restore(self) -> None:
        """As they were found; nothing happens without a ``hold``."""
        note, self._note = await self._load(), None
        if note:
            await asyncio.to_thread(self._put_back, note)
            await self._restore_log.clear(KEY)

    async def _load(self) -> dict[str, Any]:
        text = (await self._restore_log.load()).get(KEY)
        try:
            return {str(int(pid)): dict(entry) for pid, entry in plain_json.loads(text or "{}").items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise Terminal("the note on I/O priorities cannot be read", reason="PriorityNotRestored") from error

    def _look(self, wanted: Mapping[int, int], note: Mapping[str, Any]) -> tuple[dict[str, Any], dict[int, int]]:
        """The note with what is new, and what is to be set."""
        found = dict(note)
        todo: dict[int, int] = {}
        for pid, value in wanted.items():
            every, start = self._threads(pid), self._start(pid)
            threads = {thread: was for thread, was in every.items() if was != value}
            if not threads or start is None:
                continue
            todo |= dict.fromkeys(threads, value)
            known = found.get(str(pid))
            if known is None or known["start"] != start:
                known = {"start": start, "main": every.get(pid, 0), "threads": {}}
            was = {str(thread): was for thread, was in threads.items() if str(thread) not in known["threads"]}
            found[str(pid)] = {**known, "threads": {**known["threads"], **was}}
        return found, todo

    def _put_back(self, note: Mapping[str, Any]) -> None:
        for name, entry in note.items():
            pid = int(name)
            if self._start(pid) != entry["start"]:
                continue  # ended: what has its number now is somebody else
            now = self._threads(pid)
            was = {thread: int(entry["threads"].get(str(thread), entry["main"])) for thread in now}
            self._set({thread: value for thread, value in was.items() if value != now[thread]})

    def _set(self, values: Mapping[int, int]) -> None:
        for thread, value in values.items():
            try:
                self._kernel.set(thread, _settable(value))
            except ProcessLookupError:
                continue
            except OSError as error:
                raise fault(error, "set the I/O priority of", f"thread {thread}") from error

    def _threads(self, pid: int) -> dict[int, int]:
        found = {}
        try:
            names = os.listdir(self._proc / str(pid) / "task")  # noqa: PTH208 - names are all that is wanted
        except OSError:
            return {}
        for name in names:
            try:
                found[int(name)] = self._kernel.get(int(name))
            except ProcessLookupError:
                continue
            except OSError as error:
                raise fault(error, "read the I/O priority of", f"thread {name}") from error
        return found

    def _start(self, pid: int) -> str | None:
        try:
            return (self._proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[_START]
        except (OSError, IndexError):
            return None


def _settable(value: int) -> int:
    """Of a task that never chose one the kernel may show a level, which it does not take back."""
    return value if value >> _CLASS_SHIFT else 0


@cache
def _library() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _call(which: int, *arguments: int) -> int:
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        raise Terminal(f"no I/O priorities on {platform.machine()}", reason="NoPriorities")
    result = int(_library().syscall(ctypes.c_long(numbers[which]), *map(ctypes.c_long, arguments)))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
