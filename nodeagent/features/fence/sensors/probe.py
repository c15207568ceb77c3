# SPDX-License-Identifier: Apache-2.0
"""The latency of an fsync on the file system of etcd, measured with small appends of the agent.

As in the WAL of etcd, each append has 2300 bytes, in space that was allocated and never written, so that each sync also
needs a commit of the journal. (An overwrite needs none, and would show half of the latency.) The time of an append
counts from when it was due. All appends that became due during a stall are synced together and count with their whole
wait, as those of etcd would. Otherwise a stall of two seconds would be one sample among hundreds.

The file has no name (O_TMPFILE), so it disappears with the process; on a file system without such files it is removed
right after its creation. The cost of the probe is ``rate`` small syncs per second.

The thread is a daemon thread: a sync that hangs in the kernel must not keep the agent from exiting.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from nodeagent.host.fs.atomic import temp_name
from nodeagent.host.fs.os_errors import fault, translated

# Bytes, as in the recipe of fio for etcd.
_APPEND = 2300
# Bytes that are allocated in advance: six minutes at ten appends per second.
_SEGMENT = 8 << 20
# Samples; the oldest ones are dropped if they are not taken.
_KEPT = 4096
# Seconds for the sync in progress at the end.
_JOIN_TIMEOUT = 2.0
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT)


class ProbeSample(NamedTuple):
    """Seconds. ``waiting``: age of the oldest append that is not synced yet, 0 if there is none."""

    latencies: tuple[float, ...]
    waiting: float


class FsyncProbe:
    def __init__(self, directory: Path, fd: int, rate: float) -> None:
        self._directory = directory
        self._fd = fd
        self._period = 1.0 / rate
        self._latencies: deque[float] = deque(maxlen=_KEPT)
        self._due: float | None = None
        self._error: OSError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fsync-probe", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def pace(self, rate: float) -> None:
        """Set the appends per second, from the next one on."""
        self._period = 1.0 / rate

    @property
    def thread(self) -> int | None:
        """The thread id of the kernel."""
        return self._thread.native_id

    def take(self) -> ProbeSample:
        """Return the samples since the last call. Raises an error of ``os_errors`` once the file system failed."""
        # The thread cannot raise into the loop, so its failure is kept until the next read.
        if self._error is not None:
            raise fault(self._error, "write the probe to", str(self._directory))
        latencies = []
        while self._latencies:
            latencies.append(self._latencies.popleft())
        due = self._due
        return ProbeSample(tuple(latencies), 0.0 if due is None else max(0.0, time.monotonic() - due))

    async def stop(self) -> None:
        """Stop without waiting for a sync that hangs; the thread closes the file afterwards."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join, _JOIN_TIMEOUT)

    def _run(self) -> None:
        try:
            self._probe()
        except OSError as error:
            self._error = error
        finally:
            os.close(self._fd)

    def _probe(self) -> None:
        data = bytes(_APPEND)
        offset, due = 0, time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            pending = [due]
            self._due = due
            # The appends that fell due during the last sync are written together, as the queue of etcd would be.
            while (due := due + self._period) <= time.monotonic() and len(pending) < _KEPT:
                pending.append(due)
            for _ in pending:
                # A new allocation has unwritten extents, so that the next syncs commit the journal as well.
                if offset + _APPEND > _SEGMENT:
                    os.ftruncate(self._fd, 0)
                    os.posix_fallocate(self._fd, 0, _SEGMENT)
                    offset = 0
                offset += os.pwrite(self._fd, data, offset)
            os.fdatasync(self._fd)
            done = time.monotonic()
            self._latencies.extend(done - at for at in pending)
            self._due = None


@asynccontextmanager
async def fsync_probe(directory: Path, rate: float = 10.0) -> AsyncIterator[FsyncProbe]:
    """Run the probe. ``directory``: any directory on the file system; ``rate``: appends per second."""
    fd = await asyncio.to_thread(_open, directory)
    probe = FsyncProbe(directory, fd, rate)
    probe.start()
    try:
        yield probe
    finally:
        await probe.stop()


def _open(directory: Path) -> int:
    with translated("write the probe to", str(directory)):
        fd = _nameless(directory)
        try:
            os.posix_fallocate(fd, 0, _SEGMENT)
            os.fdatasync(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd


def _nameless(directory: Path) -> int:
    try:
        return os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NO_TMPFILE or not directory.is_dir():
            raise
    name = directory / temp_name()
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    name.unlink()
    return fd
