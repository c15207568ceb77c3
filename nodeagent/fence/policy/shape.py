"""What may be done to the queue of a disk while the OS is staged.

Small requests and a short queue keep the waiting in the kernel, where priorities are heeded, and out of the disk, where
first come is first served. Everybody on the disk pays for that with throughput, so a disk that is fast enough to need
none of it is left alone. A scheduler is changed between ``none`` and ``mq-deadline`` only, and only where the admin
allows it; never to bfq, which locked up kernels in the field.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.fence.policy.bounds import FAST

__all__ = ["QueueFacts", "Shape", "Untouched", "ladder"]

_PIECES = (128, 32)  # KiB, the gentle rung and the tight one
_DEPTHS = (16, 1)
_DEADLINE, _NONE = "mq-deadline", "none"


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """``/sys/block/DISK/queue`` as it was found; sizes in KiB."""

    max_sectors_kb: int
    scheduler: str
    schedulers: tuple[str, ...]
    nr_requests: int = 256
    logical_block_size: int = 512
    nvme: bool = False
    multipath: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """``depth``: requests that are on the disk at once; where a scheduler stays, all that are under way, on the disk
    or in it. ``scheduler`` "": as it is. With ``priorities`` the updater's I/O goes into the idle class and the
    victim's into the real-time class; without a scheduler that looks at them they mean nothing. ``wbt`` False: the
    kernel's writeback throttling is off, because it lets the writes of everybody's fsync through one after the other,
    whatever their priority, and the fewer the shorter the queue is."""

    max_sectors_kb: int
    depth: int
    scheduler: str = ""
    priorities: bool = False
    wbt: bool = True


@dataclass(frozen=True, slots=True)
class Untouched:
    why: str


def ladder(facts: QueueFacts, idle_p99: float | None, *, may_switch: bool) -> tuple[Shape, ...] | Untouched:
    """The shapes that this queue may be given, the gentle one first. None of them is wider than what was found.

    ``idle_p99``: seconds of an fsync on that disk before anything was staged, None if nobody measured;
    ``may_switch``: the admin allows another scheduler.
    """
    if facts.multipath:
        return Untouched("it has several paths, each with a queue of its own")
    if idle_p99 is None and facts.nvme:
        return Untouched("an NVMe disk, and nothing says that it is slow")
    if idle_p99 is not None and idle_p99 < FAST:
        return Untouched(f"it is fast: 99 % of the fsyncs take less than {idle_p99 * 1000:.1f} ms")
    if facts.scheduler not in (_NONE, _DEADLINE):
        return Untouched(f"its scheduler is {facts.scheduler}, for which nobody measured this")
    # Below a scheduler nr_requests counts each request until the disk has done it. Cut short, nothing is left to be
    # sorted by priority, and it is a short queue like that of a disk without one; as it is, all that XFS writes of its
    # own goes into the disk at once. The disk's own depth can be set without a scheduler only, so that takes leave.
    switch = may_switch and _DEADLINE in facts.schedulers and _NONE in facts.schedulers
    least = max(4, facts.logical_block_size // 1024)  # a page; the kernel takes no less
    return tuple(
        Shape(
            max_sectors_kb=min(max(piece, least), facts.max_sectors_kb),
            depth=min(depth, facts.nr_requests),
            scheduler=_DEADLINE if switch else "",
            priorities=switch,
            wbt=not switch,
        )
        for piece, depth in zip(_PIECES, _DEPTHS, strict=True)
    )
