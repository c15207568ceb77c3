# SPDX-License-Identifier: Apache-2.0
"""Runs in the guest: pauses the updater while XFS writes its own metadata.

    paused.py CGROUP RESULT

Twenty times a second it reads how many items ``xfsaild`` has pushed out of the log of any XFS. While many are pushed,
the processes of CGROUP are frozen, for a few seconds at most: requests that they have sent go on. RESULT gets a line of
JSON for each pause: when it began (monotonic clock), its length in s, and the items of XFS's log in it.
"""

from __future__ import annotations

import contextlib
import glob
import json
import signal
import sys
import time
from collections.abc import Callable

LOOK = 0.05  # seconds
MANY = 4  # items in a look, with which a pause begins
QUIET = 4  # looks without an item, with which it ends
LONGEST = 5.0  # seconds, so that an update goes on beside an XFS that always writes
PUSHED = 4  # the field of push_ail (fs/xfs/xfs_stats.h: xs_push_ail_success)


def pushed() -> int:
    total = 0
    for path in glob.glob("/sys/fs/xfs/*/stats/stats"):  # noqa: PTH207 - pathlib is slow to import without KVM
        with open(path) as file:  # noqa: PTH123
            (line,) = (line for line in file if line.startswith("push_ail "))
        total += int(line.split()[PUSHED])
    return total


def main(cgroup: str, result: str) -> None:
    def freeze(value: str) -> None:
        # Before the update begins there is no such group.
        with contextlib.suppress(FileNotFoundError), open(f"{cgroup}/cgroup.freeze", "w") as file:  # noqa: PTH123
            file.write(value)

    # systemd may end this in a pause. A group that stays frozen would stop the next staging.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit())
    try:
        watch(freeze, result)
    finally:
        freeze("0")


def watch(freeze: Callable[[str], None], result: str) -> None:
    with open(result, "w") as out:  # noqa: PTH123
        last = pushed()
        while True:
            time.sleep(LOOK)
            now = pushed()
            if now - last < MANY:
                last = now
                continue
            begun, first, quiet = time.monotonic(), last, 0
            freeze("1")
            while quiet < QUIET and time.monotonic() - begun < LONGEST:
                last = now
                time.sleep(LOOK)
                now = pushed()
                quiet = quiet + 1 if now == last else 0
            freeze("0")
            last = now
            line = {"at": begun, "paused_s": time.monotonic() - begun, "items": now - first}
            out.write(json.dumps(line) + "\n")
            out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:3])
