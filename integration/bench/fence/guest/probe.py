# SPDX-License-Identifier: Apache-2.0
"""Runs in the guest: appends as etcd's log does, at fixed times, and notes when each was due, begun and done.

    probe.py DIRECTORY RESULT [RATE]

RATE appends a second of 2300 bytes and an fdatasync, into segments of 64 MB that were allocated and never written. What
became due during a sync is written and synced together, as etcd does with proposals. RESULT gets three little-endian
doubles an append: seconds of the monotonic clock. Its memory is locked, so that it never waits for its own pages.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time

APPEND = 2300
SEGMENT = 64_000_000
MCL_CURRENT_AND_FUTURE = 3


def segment(directory: str, number: int) -> int:
    fd = os.open(f"{directory}/{number:08}.wal", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.posix_fallocate(fd, 0, SEGMENT)
    os.fsync(fd)
    return fd


def main(directory: str, result: str, rate: float) -> None:
    ctypes.CDLL(None).mlockall(MCL_CURRENT_AND_FUTURE)
    os.makedirs(directory, exist_ok=True)  # noqa: PTH103 - pathlib is slow to import without KVM
    data, record, period = bytes(APPEND), struct.Struct("<ddd"), 1 / rate
    number, offset, fd = 0, 0, segment(directory, 0)
    # The result is in memory (/run): to note it on the disk would be load of our own.
    out = os.open(result, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    due = time.monotonic() + period
    while True:
        time.sleep(max(0.0, due - time.monotonic()))
        begun, pending = time.monotonic(), []
        while due <= begun:
            pending.append(due)
            due += period
        if not pending:
            continue
        if offset + len(pending) * APPEND > SEGMENT:
            os.close(fd)
            number, offset = number + 1, 0
            fd = segment(directory, number)
        for _ in pending:
            offset += os.pwrite(fd, data, offset)
        os.fdatasync(fd)
        done = time.monotonic()
        os.write(out, b"".join(record.pack(at, begun, done) for at in pending))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 50.0)
