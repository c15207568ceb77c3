# SPDX-License-Identifier: Apache-2.0
"""The shape that the queue of a disk gets while the OS is staged.

Small requests and a short queue keep the waiting in the kernel, where priorities have an effect, and out of the disk,
which serves requests in the order of arrival. All users of the disk pay for that with throughput, so a fast disk keeps
its queue. The scheduler is changed between ``none`` and ``mq-deadline`` only, and never to bfq, which locked up kernels
in the field.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.features.fence.decide.bounds import FAST

# Requests in KiB, and how many are on the disk at once.
_PIECE = 32
_DEPTH = 1
_DEADLINE, _NONE = "mq-deadline", "none"


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """The original values of ``/sys/block/DISK/queue``; sizes in KiB."""

    max_sectors_kb: int
    scheduler: str
    schedulers: tuple[str, ...]
    nr_requests: int = 256
    logical_block_size: int = 512
    nvme: bool = False
    multipath: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """``depth``: requests on the disk at once; if a scheduler stays, all requests in progress, on the disk or in the
    scheduler. ``scheduler`` "": unchanged.

    ``priorities``: the I/O of the updater is in the idle class and that of the protected workload in the real-time
    class, which has an effect only with a scheduler that uses them. ``wbt`` False: the writeback throttling of the
    kernel is off, because it lets the writes of all fsyncs through one after the other, whatever their priority, and
    fewer of them in a shorter queue."""

    max_sectors_kb: int
    depth: int
    scheduler: str = ""
    priorities: bool = False
    wbt: bool = True


@dataclass(frozen=True, slots=True)
class UnshapedQueue:
    why: str


def choose_shape(facts: QueueFacts, idle_p99: float | None, *, may_switch: bool) -> Shape | UnshapedQueue:
    """Return the shape for this queue. It is not wider than the original.

    ``idle_p99``: latency of an fsync on the idle disk in seconds, None if it was not measured; ``may_switch``: whether
    the scheduler may be changed.
    """
    if facts.multipath:
        return UnshapedQueue("it has several paths, each with a queue of its own")
    if idle_p99 is None and facts.nvme:
        return UnshapedQueue("an NVMe disk that was not measured")
    if idle_p99 is not None and idle_p99 < FAST:
        return UnshapedQueue(f"it is fast: 99 % of the fsyncs take less than {idle_p99 * 1000:.1f} ms")
    if facts.scheduler not in (_NONE, _DEADLINE):
        return UnshapedQueue(f"its scheduler is {facts.scheduler}, which was not measured")
    # Below a scheduler nr_requests counts each request until the disk has done it. If it is cut short, there is nothing
    # left to sort by priority, and the queue is like a short one without a scheduler; if not, all metadata of XFS goes
    # to the disk at once. The depth of the disk can be set only without a scheduler.
    switch = may_switch and _DEADLINE in facts.schedulers and _NONE in facts.schedulers
    # The kernel accepts no less than a page.
    least = max(4, facts.logical_block_size // 1024)
    return Shape(
        max_sectors_kb=min(max(_PIECE, least), facts.max_sectors_kb),
        depth=min(_DEPTH, facts.nr_requests),
        scheduler=_DEADLINE if switch else "",
        priorities=switch,
        wbt=not switch,
    )
