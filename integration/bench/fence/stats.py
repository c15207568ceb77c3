# SPDX-License-Identifier: Apache-2.0
"""What a series of latencies says. Pure: seconds in, seconds out, and nothing is rounded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["HARMFUL", "Entry", "Summary", "between", "histogram_quantile", "median", "quantile", "summary"]

HARMFUL = 0.1  # seconds: etcd warns of an apply that took longer, and its heartbeats are this far apart
_BOUNDS = (0.008, 0.1, 0.5)


@dataclass(frozen=True, slots=True)
class Entry:
    """One append of the open-loop probe, in seconds of the guest's monotonic clock."""

    due: float
    begun: float  # the write and the fdatasync; later than due where an earlier one held it up
    done: float

    @property
    def latency(self) -> float:
        """From when it was due: a stall of two seconds is a hundred late entries and not one."""
        return self.done - self.due


@dataclass(frozen=True, slots=True)
class Summary:
    count: int
    p50: float
    p99: float
    p999: float
    worst: float
    over: Mapping[str, int]  # entries that took more than so many ms
    harm: float
    """Seconds in which an entry took over HARMFUL: the late entries, each for the time that it stands for."""
    sync_p99: float
    """Of the fdatasync alone. It hides stalls: during one there is one sample."""


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest of the values that at least this part of them does not exceed (no interpolation)."""
    if not values:
        raise ValueError("no values, no quantile")
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


def median(values: Sequence[float]) -> float:
    """The mean of the middle two where their number is even."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def between(entries: Sequence[Entry], begin: float, end: float) -> list[Entry]:
    """Those that were due in [begin, end)."""
    return [entry for entry in entries if begin <= entry.due < end]


def summary(entries: Sequence[Entry], rate: float) -> Summary:
    """Of entries that were due ``rate`` times a second."""
    latencies = [entry.latency for entry in entries]
    return Summary(
        count=len(latencies),
        p50=quantile(latencies, 0.5),
        p99=quantile(latencies, 0.99),
        p999=quantile(latencies, 0.999),
        worst=max(latencies),
        over={f"{bound * 1000:g}": sum(latency > bound for latency in latencies) for bound in _BOUNDS},
        harm=sum(latency > HARMFUL for latency in latencies) / rate,
        sync_p99=quantile([done - begun for begun, done in {(e.begun, e.done) for e in entries}], 0.99),
    )


def histogram_quantile(before: Mapping[float, float], after: Mapping[float, float], q: float) -> float | None:
    """Of what came between two scrapes of cumulative buckets (by upper bound), interpolated as PromQL does.

    None without a sample, or if the counting program was restarted. Where it lies in the last bucket, which has
    no bound, the greatest bound that there is.
    """
    bounds = sorted(after)
    counts = [after[bound] - before.get(bound, 0.0) for bound in bounds]
    if not counts or counts[-1] <= 0 or any(count < 0 for count in counts):
        return None
    rank = q * counts[-1]
    low, below = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count >= rank and count > below:
            return low if math.isinf(bound) else low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return None
