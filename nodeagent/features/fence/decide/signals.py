# SPDX-License-Identifier: Apache-2.0
"""The strain of the protected workload, from its own histogram of fsyncs and a probe.

The worse of them counts: a histogram lacks the fsync in progress, and a probe does not include the load of etcd.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from nodeagent.features.fence.decide.histogram import Histogram, above

# Seconds above which etcd warns about an entry; the time above it counts as harm.
STALL = 0.1

# The next bound of the buckets of etcd's histogram above ``STALL``.
ETCD_STALL = 0.128

_FACTOR, _LEAST, _MOST = 3.0, 0.008, 0.064
# A strain is this part of the fsyncs over the target, and at least this number, because a single one may be chance.
_SHARE = 0.01
_SINGLE = 2


class Source(StrEnum):
    ETCD = "etcd"
    PROBE = "probe"


class Strain(IntEnum):
    CALM = 0
    STRAINED = 1
    STALLED = 2


@dataclass(frozen=True, slots=True)
class Reading:
    source: Source
    # The end of the window.
    at: float
    strain: Strain
    # The message for operators, such as "3 of 98 fsyncs over 24 ms".
    why: str


def target(idle_p99: float | None) -> float:
    """Return the latency of an fsync, in seconds, that is still calm: three times that of the idle disk, 8 to 64 ms.

    A fixed bound would not work: a slow disk exceeds it without any update, and the cap would never rise. Above 64 ms
    the disk has a problem of its own. None: unknown, which gives the strictest target.
    """
    return _LEAST if idle_p99 is None else min(max(_FACTOR * idle_p99, _LEAST), _MOST)


def of_etcd(at: float, over: Histogram, aim: float) -> Reading | None:
    """Judge the fsyncs between two scrapes; None if there were none: etcd may be idle, or waiting for one."""
    if not over.samples:
        return None
    bounds = aim, ETCD_STALL
    return _reading(Source.ETCD, at, over.samples, bounds, [above(bound, over) for bound in bounds])


def of_probe(at: float, latencies: Sequence[float], waiting: float, aim: float) -> Reading | None:
    """Judge the samples of the probe. ``waiting``: age of the append in progress, 0 if there is none."""
    taken = [*latencies, waiting] if waiting > aim else list(latencies)
    if not taken:
        return None
    bounds = aim, STALL
    over = [sum(1 for seconds in taken if seconds > bound) for bound in bounds]
    return _reading(Source.PROBE, at, len(taken), bounds, over)


def weigh(readings: Iterable[Reading], now: float, stale: float) -> Reading | None:
    """Return the reading to act on. Readings older than ``stale`` seconds, or from the future, are ignored."""
    fresh = [reading for reading in readings if 0 <= now - reading.at <= stale]
    return max(fresh, key=lambda reading: (reading.strain, reading.at), default=None)


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
