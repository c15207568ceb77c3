"""The latency of etcd's disk before, during and after an update: the two figures that the bug reports were about.

From scrapes of its metrics. Every figure says how many samples are behind it; what cannot be said is left open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from nodeagent.core.etcd.histogram import (
    BACKEND_COMMIT,
    WAL_FSYNC,
    Exceedances,
    Histogram,
    Quantile,
    above,
    increase,
    quantile,
)

__all__ = ["BOUNDS", "HISTOGRAMS", "Figures", "Scrape", "When", "figures"]

HISTOGRAMS: Mapping[str, str] = {"wal_fsync": WAL_FSYNC, "backend_commit": BACKEND_COMMIT}
BOUNDS = (0.008, 0.016, 0.128, 1.024)
"""Seconds, all of them bounds of etcd's buckets, so that counts above them are exact. The first two are around etcd's
advice for the WAL (10 ms), the third above its warning (100 ms), the last about its election timeout (1 s)."""
_Q = 0.99


class When(StrEnum):
    BEFORE = "before"
    DURING = "during"
    AFTER = "after"
    NOW = "now"
    """Without any update."""


@dataclass(frozen=True, slots=True)
class Scrape:
    at: float
    """Seconds on a monotonic clock."""
    histograms: Mapping[str, Histogram]


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one histogram (``wal_fsync``, ``backend_commit``) in one span of time."""

    name: str
    when: When
    seconds: float
    """How long the span was."""
    p99: Quantile
    above: tuple[tuple[float, Exceedances], ...]
    resets: int


def figures(scrapes: Mapping[When, Sequence[Scrape]]) -> tuple[Figures, ...]:
    """By histogram, then by time. A span with fewer than two scrapes that have the histogram is left out.

    The last scrape of one span may be the first one of the next: nothing is lost between them then.
    """
    found = []
    for name, metric in HISTOGRAMS.items():
        for when in When:
            have = [scrape for scrape in scrapes.get(when, ()) if metric in scrape.histograms]
            over = increase([scrape.histograms[metric] for scrape in have])
            if over is not None:
                exceeded = tuple((bound, above(bound, over)) for bound in BOUNDS)
                span = have[-1].at - have[0].at
                found.append(Figures(name, when, span, quantile(_Q, over), exceeded, over.resets))
    return tuple(found)
