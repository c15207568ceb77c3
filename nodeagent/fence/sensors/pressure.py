"""How long the tasks of one cgroup waited for I/O (PSI, Documentation/accounting/psi.rst).

Two uses of one file. Its ``total`` counts microseconds: a difference over time is the share that ``signals`` wants. A
trigger written to it wakes us when much of a window was spent waiting, without anybody looking meanwhile.

A trigger must not be given to the event loop itself: its loop polls level-triggered and spins, and each poll eats the
event. So it is watched by an epoll of its own, and that one by the loop: its wake is the signal.

Degrades: without PSI (a kernel booted with psi=0, cgroup v1) there is nothing, with the reason ``NoPressure``; where no
trigger may be set (a read-only /sys/fs/cgroup, a window that needs CAP_SYS_RESOURCE) ``strained`` looks at ``total``
once a second instead.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from nodeagent.errors import Retryable
from nodeagent.host.fs.os_errors import fault

__all__ = ["Pressure", "pressure"]

_SOME = "some "
_TOTAL = "total="
_LOOK = 1.0  # seconds between two looks at total, without a trigger
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
_OFF = (errno.EOPNOTSUPP, errno.ENODEV)
_MICROSECONDS = 1_000_000


class Pressure:
    """Of one file, open until ``pressure`` ends."""

    def __init__(self, file: Path, fd: int, stall: float, window: float) -> None:
        self._file = file
        self._fd = fd
        self._stall = stall
        self._window = window
        self._epoll: select.epoll | None = None
        self._woken = asyncio.Event()
        self._gone = False
        self.wakes = 0
        """How often the trigger woke us."""
        self._total = self._read()
        self._at = _now()

    @property
    def triggered(self) -> bool:
        """False: nobody wakes us, so ``strained`` looks."""
        return self._epoll is not None

    def share(self) -> float:
        """Of the time since the last question (0 to 1) in which some task waited. ``Retryable`` (``NoPressure``) when
        the cgroup is gone."""
        total, at = self._read(), _now()
        waited, passed = (total - self._total) / _MICROSECONDS, at - self._at
        self._total, self._at = total, at
        return min(max(waited / passed, 0.0), 1.0) if passed > 0 else 0.0

    async def strained(self, deadline: float) -> bool:
        """Whether, within ``deadline`` seconds, tasks waited for ``stall`` seconds of a window. ``Retryable``
        (``NoPressure``) when the cgroup is gone."""
        until = _now() + deadline
        if self.triggered:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._woken.wait()
            woken = self._woken.is_set()
            self._woken.clear()
            if self._gone:
                raise _gone(self._file)
            return woken
        share, before, at = self._stall / self._window, self._read(), _now()
        while (left := until - _now()) > 0:
            await asyncio.sleep(min(_LOOK, left))
            total, now = self._read(), _now()
            if (total - before) / _MICROSECONDS >= share * (now - at):
                return True
            before, at = total, now
        return False

    def arm(self) -> None:
        """Raises ``OSError`` where it may not be; then it stays as it was."""
        os.write(self._fd, f"some {self._stall * _MICROSECONDS:.0f} {self._window * _MICROSECONDS:.0f}\0".encode())
        self._epoll = select.epoll()
        self._epoll.register(self._fd, select.EPOLLPRI | select.EPOLLERR)
        asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._wake)

    def close(self) -> None:
        self._forget()
        os.close(self._fd)

    def _wake(self) -> None:
        assert self._epoll is not None
        self.wakes += 1
        # Most of the time empty: what woke us was eaten by the wake. An error is there for good.
        self._gone = any(event & select.EPOLLERR for _fd, event in self._epoll.poll(0))
        if self._gone:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
        self._woken.set()

    def _forget(self) -> None:
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _read(self) -> int:
        """Microseconds. From the kernel's memory: it does not wait for a disk."""
        try:
            text = os.pread(self._fd, 4096, 0).decode()
        except OSError as error:  # ENODEV: the cgroup was removed; EOPNOTSUPP: PSI is off
            raise _gone(self._file) from error
        line = next((line for line in text.splitlines() if line.startswith(_SOME)), "")
        return int(line.rpartition(_TOTAL)[2] or 0)


@asynccontextmanager
async def pressure(file: Path, *, stall: float = 0.2, window: float = 2.0) -> AsyncIterator[Pressure]:
    """``file`` is the ``io.pressure`` of the victim's cgroup. ``window``: seconds, 0.5 to 10; without CAP_SYS_RESOURCE
    multiples of 2 only. ``Retryable`` (``NoPressure``) if there is none."""
    fd, writable = await asyncio.to_thread(_open, file)
    try:
        found = Pressure(file, fd, stall, window)
    except BaseException:
        os.close(fd)
        raise
    try:
        if writable:
            with suppress(OSError):  # then it is looked at
                found.arm()
        yield found
    finally:
        found.close()


def _open(file: Path) -> tuple[int, bool]:
    try:
        try:
            return os.open(file, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), True
        except OSError as error:
            if error.errno not in _NOT_WRITABLE:
                raise
            return os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), False
    except FileNotFoundError as error:
        raise Retryable(f"{file}: no pressure is measured there", reason="NoPressure") from error
    except OSError as error:
        if error.errno in _OFF:
            message = f"{file}: the kernel measures no pressure (psi=1 turns it on)"
            raise Retryable(message, reason="NoPressure") from error
        raise fault(error, "read", str(file)) from error


def _gone(file: Path) -> Retryable:
    return Retryable(f"{file}: the cgroup is gone, or the kernel measures no pressure", reason="NoPressure")


def _now() -> float:
    return asyncio.get_running_loop().time()
