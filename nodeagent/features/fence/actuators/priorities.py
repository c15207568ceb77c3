# SPDX-License-Identifier: Apache-2.0
"""I/O priorities of tasks: idle for the updater, real-time for the protected workload, and their restoration.

ioprio_set(2) sets the priority of a thread, and new threads inherit it. So a search for new threads from time to time
is enough, and a thread that is not in the restore log gets the original priority of its process. The original values
are saved before the first change; otherwise a kill of the agent would leave the workload in the real-time class.

A priority that must not be set (no CAP_SYS_NICE, a process of another user namespace) is ``Terminal``
(``PermissionDenied`` or ``Immutable``).
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psutil

from nodeagent.core.config.text import plain_json
from nodeagent.errors import Terminal
from nodeagent.features.fence.reasons import FenceReason
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.host.fs.os_errors import fault

KEY = "ioprio"
# As ioprio_get(2) encodes the class and the level.
_CLASS_SHIFT = 13
_LEVEL = 7

# The level in the middle, which is the default of the kernel in each class.
REALTIME = 1 << _CLASS_SHIFT | 4
IDLE = 3 << _CLASS_SHIFT


class IoPriority:
    """Threads and their I/O priorities; blocking. Raises ``ProcessLookupError`` for an ended thread, and ``OSError``.

    The number of a thread is one of a process for the kernel, and so for psutil.
    """

    def get(self, thread: int) -> int:
        with _translated():
            priority = _ionice(thread)()
        return int(priority.ioclass) << _CLASS_SHIFT | int(priority.value)

    def set(self, thread: int, value: int) -> None:
        with _translated():
            _ionice(thread)(value >> _CLASS_SHIFT, value & _LEVEL)

    def threads(self, pid: int) -> list[int]:
        with _translated():
            return [thread.id for thread in psutil.Process(pid).threads()]

    def started(self, pid: int) -> str:
        """Return the start time, which differs from that of another process with the same number."""
        with _translated():
            return f"{psutil.Process(pid).create_time():.2f}"


@contextmanager
def _translated() -> Iterator[None]:
    """Raise errors of psutil as the errors of the system that caused them."""
    try:
        yield
    except psutil.NoSuchProcess as error:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from error
    except psutil.AccessDenied as error:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM)) from error


def _ionice(thread: int) -> Callable[..., Any]:
    # psutil has the method on machines whose numbers of the system calls it knows.
    ionice: Callable[..., Any] | None = getattr(psutil.Process(thread), "ionice", None)
    if ionice is None:
        raise Terminal(f"no I/O priorities on {platform.machine()}", reason=FenceReason.NO_PRIORITIES)
    return ionice


class Priorities:
    """Call ``hold`` at any interval and ``restore`` at the end, or at the next start after a kill."""

    def __init__(self, restore_log: RestoreLog, kernel: IoPriority | None = None) -> None:
        self._restore_log = restore_log
        self._kernel = kernel or IoPriority()
        self._note: dict[str, Any] | None = None

    async def hold(self, idle: Iterable[int], realtime: Iterable[int]) -> None:
        """Set the classes of all threads of these processes; ended processes are skipped."""
        wanted = {**dict.fromkeys(realtime, REALTIME), **dict.fromkeys(idle, IDLE)}
        if self._note is None:
            self._note = await self._load()
        noted, todo = await asyncio.to_thread(self._look, wanted, self._note)
        # The log is written before the first change. After a kill in between, too much is restored, which is harmless.
        if noted != self._note:
            await self._restore_log.save(KEY, json.dumps(noted))
            self._note = noted
        await asyncio.to_thread(self._set, todo)

    async def raise_own(self, thread: int) -> None:
        """Give a thread of the agent the real-time class. It is not saved, because the thread ends with the agent."""
        await asyncio.to_thread(self._set, {thread: REALTIME})

    async def restore(self) -> None:
        """Restore the original priorities; no effect without ``hold``."""
        note, self._note = await self._load(), None
        if note:
            await asyncio.to_thread(self._put_back, note)
            await self._restore_log.clear(KEY)

    async def _load(self) -> dict[str, Any]:
        text = (await self._restore_log.load()).get(KEY)
        try:
            return {str(int(pid)): dict(entry) for pid, entry in plain_json.loads(text or "{}").items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise Terminal(
                "the restore log of I/O priorities cannot be read", reason=FenceReason.PRIORITY_NOT_RESTORED
            ) from error

    def _look(self, wanted: Mapping[int, int], note: Mapping[str, Any]) -> tuple[dict[str, Any], dict[int, int]]:
        """Return the new entry of the log, and the priorities to set."""
        noted = dict(note)
        todo: dict[int, int] = {}
        for pid, value in wanted.items():
            every, start = self._threads(pid), self._start(pid)
            threads = {thread: was for thread, was in every.items() if was != value}
            if not threads or start is None:
                continue
            todo |= dict.fromkeys(threads, value)
            entry = noted.get(str(pid))
            # The kernel reuses numbers. The start time shows that this is another process.
            if entry is None or entry["start"] != start:
                entry = {"start": start, "main": every.get(pid, 0), "threads": {}}
            # The first value of a thread is the original one. Later ones were set here.
            was = {str(thread): was for thread, was in threads.items() if str(thread) not in entry["threads"]}
            noted[str(pid)] = {**entry, "threads": {**entry["threads"], **was}}
        return noted, todo

    def _put_back(self, note: Mapping[str, Any]) -> None:
        for name, entry in note.items():
            pid = int(name)
            if self._start(pid) != entry["start"]:
                # It ended, and another process has its number.
                continue
            now = self._threads(pid)
            was = {thread: int(entry["threads"].get(str(thread), entry["main"])) for thread in now}
            self._set({thread: value for thread, value in was.items() if value != now[thread]})

    def _set(self, values: Mapping[int, int]) -> None:
        for thread, value in values.items():
            try:
                # The kernel may show a level for a task that never set a class, and reject that value.
                self._kernel.set(thread, value if value >> _CLASS_SHIFT else 0)
            except ProcessLookupError:
                continue
            except OSError as error:
                raise fault(error, "set the I/O priority of", f"thread {thread}") from error

    def _threads(self, pid: int) -> dict[int, int]:
        priorities = {}
        try:
            numbers = self._kernel.threads(pid)
        except ProcessLookupError:
            return {}
        for number in numbers:
            try:
                priorities[number] = self._kernel.get(number)
            except ProcessLookupError:
                continue
            except OSError as error:
                raise fault(error, "read the I/O priority of", f"thread {number}") from error
        return priorities

    def _start(self, pid: int) -> str | None:
        try:
            return self._kernel.started(pid)
        except OSError:
            return None
