"""Between what the fence moves. The defaults are for a disk that nobody measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

__all__ = ["FAST", "FENCE_BOUNDS", "Bounds", "Idle", "careful", "floor_at", "opening"]

FAST = 0.002
"""Seconds, p99 of an fsync on the idle disk, below which the disk needs no help."""

_AT_ONCE = 32 << 10  # bytes that may be written in the time of an idle fsync
_REQUESTS = 2  # of that size, at least, that the disk does in that time
_MARGIN = 1.1  # over what a deadline needs: the bytes that are left are an estimate
_LATE = 0.5  # part of the time after which the floor rises, when nobody knows how much is left


@dataclass(frozen=True, slots=True)
class Bounds:
    floor: float = 4e6
    """Bytes a second that the updater may always write. Far below, its half-written transactions hold up everybody who
    waits for the journal: the cap causes the stall that it should prevent. Take twice that for a kernel before 6.12,
    where metadata does not overtake throttled data."""
    floor_iops: int = 200
    """Writes a second, where the queue is shaped. Whoever is heeded first waits for one piece at most there, so it is
    more than ``floor`` in pieces of 32 KiB: below it an update takes longer and hurts no less. Less on ext4, where an
    fsync waits more often (``careful``)."""
    first: float = 16e6
    """What it may write at first."""
    most: float = math.inf
    """What it may write at most, whatever the victim says: what a slow disk can do (``opening``). More brings nothing,
    and lets the next burst of metadata in front of everybody. Not less than ``blind``: the disk may have been measured
    in a bad moment, and what is too little here stays so for the whole update."""
    disk: float | None = None
    """What the disk can do, by what is known before an update; None: nothing is. The cap comes near it slowly."""
    blind: float = 16e6
    """What it may write at most while nobody knows how the victim fares."""
    ceiling: float = 256e6
    """Above it there is no cap."""
    deadline: float = 1800.0
    """Seconds after which everything is open: the update always ends."""
    stale: float = 5.0
    """Seconds after which a signal counts for nothing."""
    interval: float = 1.0
    """Seconds between two changes. The kernel begins a new slice of 100 ms at each."""
    settle: float = 2.0
    """Seconds that a lower cap gets to show what it does, before it is lowered again."""
    patience: float = 3.0
    """Seconds of calm before the cap is raised; twice as long after each strain, up to ``patience_most``."""
    patience_most: float = 48.0
    wary: float = 24.0
    """Seconds of calm before the cap is raised near ``disk``, as long as the victim was never strained."""
    bold: float = 120.0
    """Seconds of calm before it is raised beyond ``disk``, which may have been measured in a bad moment."""
    drain: int | None = None
    """Bytes of the updater that may wait in memory before they are sent to the disk; None: as the kernel sees fit."""
    relax: float = 60.0
    """Seconds of calm without a cap before the queue gets a gentler shape."""
    relaxations: int = 3
    """How often that may happen: changing a queue stops it for a moment."""


FENCE_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Idle:
    """What an fsync takes while nothing is staged; seconds."""

    p50: float
    p99: float


_CAREFUL = 8e6  # bytes a second, the floor where throttled data can hold up a journal
_DRAIN = 128 << 10  # bytes; a few dozen small files, each of which takes room in a journal until it is written
_JOURNAL_IOPS = 150  # what a slice of the kernel's (0.1 s) lets through is waited for three times in an fsync there
_METADATA_OVERTAKES = (6, 12)  # the first kernel that lets it (29390bb5661d, "blk-throttle: support prioritized ...")


def careful(bounds: Bounds, filesystem: str, kernel: str) -> Bounds:
    """With a floor for this file system and this kernel release, such as "xfs" and "6.12.0-55.el10.x86_64", and little
    that waits in memory where others wait for it."""
    numbers = tuple(int(part) if part.isdigit() else 0 for part in kernel.replace("-", ".").split(".")[:2])
    floor = bounds.floor if numbers >= _METADATA_OVERTAKES else max(bounds.floor, _CAREFUL)
    bounds = replace(bounds, floor=floor)
    return replace(bounds, floor_iops=_JOURNAL_IOPS, drain=_DRAIN) if filesystem == "ext4" else bounds


def opening(bounds: Bounds, idle: Idle | None) -> Bounds:
    """What it may write at first. ``idle`` None: nobody measured.

    An fsync is at least two requests one after the other, so a usual one says how many the disk can do in a second, of
    which the updater gets half; the slowest of a hundred speaks of whatever else the host did. A fast disk is open
    from the start: what is shut there needlessly would take half a minute to open.
    """
    if idle is None:
        return bounds
    if idle.p99 < FAST:
        return replace(bounds, first=bounds.ceiling, drain=None)
    first = max(min(_AT_ONCE / idle.p50, bounds.ceiling), bounds.floor)
    disk = _REQUESTS * _AT_ONCE / idle.p50
    return replace(bounds, first=first, disk=disk, most=max(disk, first, bounds.blind))


def floor_at(bounds: Bounds, elapsed: float, left: float | None) -> float:
    """Bytes a second that are due ``elapsed`` seconds after the start, with ``left`` bytes to be written (None:
    nobody knows). Between ``floor`` and ``ceiling``; it never falls as time goes by unless ``left`` does."""
    remaining = bounds.deadline - elapsed
    if remaining <= 0:
        return bounds.ceiling
    if left is not None:
        due = _MARGIN * left / remaining
    else:
        late = max(0.0, elapsed / bounds.deadline - _LATE) / (1 - _LATE)
        due = bounds.floor + late * (bounds.ceiling - bounds.floor)
    return min(max(bounds.floor, due), bounds.ceiling)
