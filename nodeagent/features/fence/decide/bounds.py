# SPDX-License-Identifier: Apache-2.0
"""The bounds of the controller. The defaults are for a disk that was not measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

# Seconds, p99 of an fsync on the idle disk, below which the disk needs no limits.
FAST = 0.002

# Bytes that may be written in the time of an idle fsync, and requests of that size that the disk does in that time.
_AT_ONCE = 32 << 10
_REQUESTS = 2
# Part of the time after which the floor rises.
_LATE = 0.5


@dataclass(frozen=True, slots=True)
class Bounds:
    """Rates are bytes per second, times are seconds."""

    # The lowest cap. Far below it, the half-written transactions of the updater block every program that waits for the
    # journal: the cap causes the stall that it should prevent. ``careful`` doubles it before kernel 6.12.
    floor: float = 4e6
    # The lowest cap in writes per second, for a queue with a shape. With priorities, an fsync waits for one request at
    # most there, so it is more than ``floor`` in requests of 32 KiB: below it an update takes longer and hurts no less.
    # Less on ext4, where an fsync waits more often (``careful``).
    floor_iops: int = 200
    # The first cap.
    first: float = 16e6
    # The highest cap on a slow disk (``opening``). More brings nothing, and lets the next burst of metadata overtake
    # the other writers. Not less than ``blind``: the disk may have been measured at a bad time, and a cap that is too
    # low here would last for the whole update.
    most: float = math.inf
    # The rate that the disk is expected to reach; None: unknown. The cap rises slowly near it.
    disk: float | None = None
    # The highest cap without a signal of the protected workload.
    blind: float = 16e6
    # Above this rate there is no cap.
    ceiling: float = 256e6
    # Time after which nothing is limited, so that an update always ends. No staging should need more.
    deadline: float = 1800.0
    # Age after which a signal is ignored.
    stale: float = 5.0
    # Time between two changes. The kernel starts a new slice of 100 ms at each.
    interval: float = 1.0
    # Time for a lower cap to take effect before it is lowered again.
    settle: float = 2.0
    # Calm before the cap is raised; doubled after each strain, up to ``patience_most``.
    patience: float = 3.0
    patience_most: float = 48.0
    # Calm before the cap is raised near ``disk``, as long as there was no strain.
    wary: float = 24.0
    # Calm before the cap is raised beyond ``disk``, which may have been measured at a bad time.
    bold: float = 120.0
    # Dirty bytes of the updater above which they are written to the disk; None: left to the kernel.
    drain: int | None = None
    # Calm without a cap before the rate of the last strain is forgotten.
    relax: float = 60.0


FENCE_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Idle:
    """The latency of an fsync while nothing is staged, in seconds."""

    p50: float
    p99: float


# Bytes per second, the floor where throttled data can block a journal.
_CAREFUL = 8e6
# Dirty bytes of a few dozen small files, each of which takes room in a journal until it is written.
_DRAIN = 128 << 10
# An fsync on ext4 waits three times for the writes that the kernel lets through in a slice of 0.1 s.
_JOURNAL_IOPS = 150
# The first kernel whose metadata overtakes throttled data (29390bb5661d, "blk-throttle: support prioritized ...").
_METADATA_OVERTAKES = (6, 12)


def careful(bounds: Bounds, filesystem: str, kernel: str) -> Bounds:
    """Return the bounds for a file system and a kernel release, such as "xfs" and "6.12.0-55.el10.x86_64"."""
    numbers = tuple(int(part) if part.isdigit() else 0 for part in kernel.replace("-", ".").split(".")[:2])
    floor = bounds.floor if numbers >= _METADATA_OVERTAKES else max(bounds.floor, _CAREFUL)
    bounds = replace(bounds, floor=floor)
    return replace(bounds, floor_iops=_JOURNAL_IOPS, drain=_DRAIN) if filesystem == "ext4" else bounds


def opening(bounds: Bounds, idle: Idle | None) -> Bounds:
    """Return the bounds with the first cap for the measured disk; unchanged without a measurement.

    An fsync is at least two requests one after the other, so the median gives the number of requests that the disk can
    do in a second, of which the updater gets half. The slowest of a hundred reflects other load of the host. A fast
    disk has no cap from the start, because an unneeded cap would take half a minute to go.
    """
    if idle is None:
        return bounds
    if idle.p99 < FAST:
        return replace(bounds, first=bounds.ceiling, drain=None)
    first = max(min(_AT_ONCE / idle.p50, bounds.ceiling), bounds.floor)
    disk = _REQUESTS * _AT_ONCE / idle.p50
    return replace(bounds, first=first, disk=disk, most=max(disk, first, bounds.blind))


def floor_at(bounds: Bounds, elapsed: float) -> float:
    """Return the lowest cap ``elapsed`` seconds after the start, between ``floor`` and ``ceiling``.

    It rises in the last half of the time, because the number of bytes that are left to write is unknown.
    """
    if elapsed >= bounds.deadline:
        return bounds.ceiling
    late = max(0.0, elapsed / bounds.deadline - _LATE) / (1 - _LATE)
    return bounds.floor + late * (bounds.ceiling - bounds.floor)
