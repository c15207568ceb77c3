# SPDX-License-Identifier: Apache-2.0
"""A disk's queue with the kernel's habits (``block/elevator.c``, ``block/blk-mq.c``): what depends on what.

``test_queue`` compares it with a real loop device where there is one.
"""

from __future__ import annotations

from collections.abc import Callable

from nodeagent.features.fence.actuators.block_queue import SysfsQueue

DEFAULTS = {"read_expire": "500", "writes_starved": "2"}
TAGS = 128  # BLKDEV_DEFAULT_RQ


class SimulatedQueue(SysfsQueue):
    """``depth`` is the hidden depth of the disk; ``asked`` the one that its driver requested."""

    def __init__(self, scheduler: str = "none", asked: int = 256) -> None:
        self.sequence = "7"
        self.max_sectors_kb = 1280
        self.wbt = "75000"
        self.asked = self.depth = asked
        self.scheduler = scheduler
        self.requests = asked if scheduler == "none" else 2 * min(asked, TAGS)
        self.iosched = dict(DEFAULTS) if scheduler != "none" else {}
        self.before: Callable[[], None] = lambda: None
        self.writes: list[tuple[str, str]] = []

    @property
    def state(self) -> tuple[object, ...]:
        settings = tuple(sorted(self.iosched.items()))
        return self.max_sectors_kb, self.depth, self.scheduler, self.requests, self.wbt, settings

    def identity(self) -> str:
        return self.sequence

    def names(self, directory: str) -> list[str]:
        return sorted(self.iosched) if directory == "iosched" else []

    def read(self, name: str) -> str:
        self.before()
        if name == "max_sectors_kb":
            return str(self.max_sectors_kb)
        if name == "nr_requests":
            return str(self.requests)
        if name == "scheduler":
            return " ".join(f"[{name}]" if name == self.scheduler else name for name in ("none", "mq-deadline", "bfq"))
        if name == "wbt_lat_usec":
            return self.wbt
        if name == "logical_block_size":
            return "512"
        return self.iosched[name.removeprefix("iosched/")]

    def write(self, name: str, value: str) -> None:
        self.before()
        self.writes.append((name, value))
        if name == "max_sectors_kb":
            self.max_sectors_kb = int(value)
        elif name == "wbt_lat_usec":
            self.wbt = value
        elif name == "nr_requests":
            if int(value) == self.requests:
                return
            self.requests = max(4, int(value))
            if self.scheduler == "none":
                self.depth = self.requests
        elif name == "scheduler":
            self.scheduler = value
            self.requests = self.asked if value == "none" else 2 * min(self.asked, TAGS)
            self.iosched = {} if value == "none" else dict(DEFAULTS)
        else:
            if name.removeprefix("iosched/") not in self.iosched:
                raise FileNotFoundError(name)
            self.iosched[name.removeprefix("iosched/")] = value
