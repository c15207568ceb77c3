"""The part of the time in which tasks of one cgroup waited for I/O (PSI, Documentation/accounting/psi.rst).

It is sampled with each decision. A trigger of the kernel could wake the fence earlier, but cgroups are read-only for
the daemon. If the kernel measures no pressure (psi=0, cgroup v1), the reason is ``NoPressure``.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nodeagent.errors import Retryable
from nodeagent.host.fs.os_errors import fault
from nodeagent.reasons import Reason

__all__ = ["Pressure", "pressure"]

_SOME = "some "
_TOTAL = "total="
_OFF = (errno.EOPNOTSUPP, errno.ENODEV)
_MICROSECONDS = 1_000_000


class Pressure:
    """The pressure in one file, open while ``pressure`` lasts."""

    def __init__(self, file: Path, fd: int) -> None:
        self._file = file
        self._fd = fd
        self._total = self._read()
        self._at = _now()

    def share(self) -> float:
        """Return the part of the time since the last call (0 to 1) in which some task waited.

        ``Retryable`` (``NoPressure``) if the cgroup was removed.
        """
        total, at = self._read(), _now()
        waited, passed = (total - self._total) / _MICROSECONDS, at - self._at
        self._total, self._at = total, at
        return min(max(waited / passed, 0.0), 1.0) if passed > 0 else 0.0

    def _read(self) -> int:
        """Return the total in microseconds. This reads the memory of the kernel, so it waits for no disk."""
        try:
            text = os.pread(self._fd, 4096, 0).decode()
        except OSError as error:
            # ENODEV: the cgroup was removed. EOPNOTSUPP: PSI is off.
            message = f"{self._file}: the cgroup is gone, or the kernel measures no pressure"
            raise Retryable(message, reason=Reason.NO_PRESSURE) from error
        line = next((line for line in text.splitlines() if line.startswith(_SOME)), "")
        return int(line.rpartition(_TOTAL)[2] or 0)


@asynccontextmanager
async def pressure(file: Path) -> AsyncIterator[Pressure]:
    """Open the ``io.pressure`` of a cgroup. ``Retryable`` (``NoPressure``) if there is none."""
    fd = await asyncio.to_thread(_open, file)
    try:
        yield Pressure(file, fd)
    finally:
        os.close(fd)


def _open(file: Path) -> int:
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise Retryable(f"{file}: no pressure is measured there", reason=Reason.NO_PRESSURE) from error
    except OSError as error:
        if error.errno in _OFF:
            message = f"{file}: the kernel measures no pressure (psi=1 turns it on)"
            raise Retryable(message, reason=Reason.NO_PRESSURE) from error
        raise fault(error, "read", str(file)) from error


def _now() -> float:
    return asyncio.get_running_loop().time()
