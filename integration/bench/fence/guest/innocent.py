# SPDX-License-Identifier: Apache-2.0
"""Runs in the guest: a third program on the disk, which neither stages nor is protected. It reads and writes a little.

    innocent.py FILE READS WRITES

READS: 20 times a second 4 KiB from anywhere in FILE (64 MB), past the page cache. WRITES: once a second 256 KiB and an
fsync. Each gets three little-endian doubles an operation: seconds of the monotonic clock at which it was due, begun,
and done.
"""

from __future__ import annotations

import mmap
import os
import random
import struct
import sys
import threading
import time
from collections.abc import Callable

SIZE, PAGE, WRITE = 64 << 20, 4096, 256 << 10


def steadily(rate: float, work: Callable[[int], None], result: str) -> None:
    record = struct.Struct("<ddd")
    out = os.open(result, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    number, due = 0, time.monotonic() + 1 / rate
    while True:
        time.sleep(max(0.0, due - time.monotonic()))
        begun = time.monotonic()
        work(number)
        os.write(out, record.pack(due, begun, time.monotonic()))
        number, due = number + 1, due + 1 / rate


def main(path: str, reads: str, writes: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - pathlib is slow to import without KVM
    with open(path, "wb") as file:  # noqa: PTH123
        for _ in range(SIZE // WRITE):
            file.write(os.urandom(WRITE))
        file.flush()
        os.fsync(file.fileno())
    source = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    page, anywhere = mmap.mmap(-1, PAGE), random.Random(1)
    target = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    data = os.urandom(WRITE)

    def read(_number: int) -> None:
        os.preadv(source, [page], anywhere.randrange(SIZE // PAGE) * PAGE)

    def write(number: int) -> None:
        os.pwrite(target, data, number % 64 * WRITE)
        os.fsync(target)

    threading.Thread(target=steadily, args=(1.0, write, writes), daemon=True).start()
    steadily(20.0, read, reads)


if __name__ == "__main__":
    main(*sys.argv[1:4])
