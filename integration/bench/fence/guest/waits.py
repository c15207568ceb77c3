# SPDX-License-Identifier: Apache-2.0
"""Runs in the guest: notes where in the kernel all tasks wait while an append of the probe is late.

    waits.py PROBE RESULT

PROBE is the probe's process. RESULT gets a line of JSON for each look: when (monotonic clock), for how long the probe
was found waiting (s; it may be for more than one sync), and of each task that sleeps uninterruptibly (D), or is kept
from a processor within the kernel (R), its name and the functions that it is in, innermost first. It costs processor,
so what is measured beside it is not to be published.
"""

from __future__ import annotations

import json
import os
import sys
import time

LOOK = 0.02  # seconds between two looks at the probe
LATE = 0.06  # seconds for which it waits before other tasks are checked
AGAIN = 0.06  # seconds between two looks at the others, which cost most
DEEP = 24  # functions of each


def state(pid: str) -> str:
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - pathlib is slow to import without KVM
        return file.read().rpartition(")")[2].split()[0]


def waiting() -> list[tuple[str, str, list[str]]]:
    found, own = [], str(os.getpid())
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            threads = os.listdir(f"/proc/{pid}/task") if pid != own else []  # noqa: PTH208
            for each in (f"{pid}/task/{thread}" for thread in threads):
                if (how := state(each)) in "DR":
                    with open(f"/proc/{each}/comm") as comm, open(f"/proc/{each}/stack") as stack:  # noqa: PTH123
                        frames = [line.split()[1].partition("+")[0] for line in stack][:DEEP]
                        found.append((how, comm.read().strip(), frames))
        except OSError:
            continue
    return found


def main(probe: str, result: str) -> None:
    since = reported = 0.0
    with open(result, "w") as out:  # noqa: PTH123
        while True:
            time.sleep(LOOK)
            now = time.monotonic()
            if state(probe) != "D":
                since = 0.0
                continue
            since = since or now
            if now - since >= LATE and now - reported >= AGAIN:
                reported = now
                line = {"at": round(now, 3), "waits": round(now - since, 3), "tasks": waiting()}
                out.write(json.dumps(line) + "\n")
                out.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
