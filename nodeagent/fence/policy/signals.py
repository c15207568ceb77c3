"""How the victim fares, from whichever of three sources speaks: its own histogram of fsyncs, a probe of ours on the
same file system, the pressure of its cgroup.

The first two measure what hurts, so the worse of them counts: a histogram has no fsync that is still under way, and a
probe does not know what etcd does. Pressure also counts reads and says nothing of single stalls; it is heard when
neither speaks. Pressure of the whole host, or of the updater, is no source: the fence itself raises it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from nodeagent.core.etcd.histogram import Increase, above

__all__ = [
    "ETCD_STALL",
    "STALL",
    "Reading",
    "Source",
    "Strain",
    "of_etcd",
    "of_pressure",
    "of_probe",
    "target",
    "weigh",
]

STALL = 0.1
"""Seconds. An entry that takes longer is one that etcd warns about, and what we count as harm."""
ETCD_STALL = 0.128  # the bound of etcd's buckets above it

_FACTOR, _LEAST, _MOST = 3.0, 0.008, 0.064
_SHARE = 0.01  # of the fsyncs may be over the target ...
_SINGLE = 2  # ... and one of them by chance
_PRESSURE_STRAIN, _PRESSURE_STALL = 0.2, 0.6  # of the time in which some task waited


class Source(StrEnum):
    ETCD = "etcd"
    PROBE = "probe"
    PRESSURE = "pressure"


class Strain(IntEnum):
    CALM = 0
    STRAINED = 1
    STALLED = 2


@dataclass(frozen=True, slots=True)
class Reading:
    source: Source
    at: float
    """When the window ended that it speaks of."""
    strain: Strain
    why: str
    """For people, such as "3 of 98 fsyncs over 24 ms"."""


def target(idle_p99: float | None) -> float:
    """Seconds that an fsync may take while we write: three times what it took before, between 8 and 64 ms.

    An absolute bound will not do: on a slow disk it is exceeded without any update, and the fence would stay shut.
    Above 64 ms the disk is in trouble of its own. None: not known, so the strictest.
    """
    return _LEAST if idle_p99 is None else min(max(_FACTOR * idle_p99, _LEAST), _MOST)


def of_etcd(at: float, over: Increase, aim: float) -> Reading | None:
    """None without a single fsync: it may be idle, or stuck in one."""
    if not over.samples:
        return None
    bounds = aim, ETCD_STALL
    return _reading(Source.ETCD, at, over.samples, bounds, [above(bound, over).least for bound in bounds])


def of_probe(at: float, latencies: Sequence[float], waiting: float, aim: float) -> Reading | None:
    """``waiting``: for how long the one that is under way has been waited for, 0 if none is."""
    taken = [*latencies, waiting] if waiting > aim else list(latencies)
    if not taken:
        return None
    bounds = aim, STALL
    over = [sum(1 for seconds in taken if seconds > bound) for bound in bounds]
    return _reading(Source.PROBE, at, len(taken), bounds, over)


def of_pressure(at: float, share: float) -> Reading:
    """``share`` (0 to 1) of the window in which some task of the victim waited for I/O."""
    strain = Strain.STALLED if share > _PRESSURE_STALL else Strain(int(share > _PRESSURE_STRAIN))
    return Reading(Source.PRESSURE, at, strain, f"waited for I/O {share:.0%} of the time")


def weigh(readings: Iterable[Reading], now: float, stale: float) -> Reading | None:
    """The one to act on. Those older than ``stale`` seconds, or from the future, count for nothing."""
    fresh = [reading for reading in readings if 0 <= now - reading.at <= stale]
    measured = [reading for reading in fresh if reading.source is not Source.PRESSURE]
    return max(measured or fresh, key=lambda reading: (reading.strain, reading.at), default=None)


def _reading(source: Source, at: float, samples: float, bounds: tuple[float, float], over: Sequence[float]) -> Reading:
    """Judge a window. ``over``: the number of samples above each of ``bounds``, the target and a stall."""
    aim, stall = bounds
    slow, stalled = over
    if stalled:
        return Reading(source, at, Strain.STALLED, _sentence(stalled, samples, stall))
    strain = Strain.STRAINED if slow >= max(_SINGLE, _SHARE * samples) else Strain.CALM
    return Reading(source, at, strain, _sentence(slow, samples, aim))


def _sentence(slow: float, samples: float, bound: float) -> str:
    return f"{slow:.0f} of {samples:.0f} fsyncs over {bound * 1000:.0f} ms"
