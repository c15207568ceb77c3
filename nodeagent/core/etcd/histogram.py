"""Prometheus histograms: what a victim's own metrics say about its latency, between two scrapes.

A histogram counts since the process started, in buckets that hold all samples up to a bound; what happened meanwhile is
a difference of two. Quantiles are those of PromQL's ``histogram_quantile``: linear inside the bucket, which is a guess.
So the bucket's bounds are kept beside it: etcd's are powers of two in ms, and whether a p99 is below 10 ms cannot be
said when it fell between 8 and 16. How many samples exceeded a bound of a bucket is no guess.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from nodeagent.errors import Retryable
from nodeagent.reasons import Reason

__all__ = [
    "BACKEND_COMMIT",
    "WAL_FSYNC",
    "Exceedances",
    "Histogram",
    "Increase",
    "Quantile",
    "QuantileStanding",
    "above",
    "increase",
    "parse",
    "quantile",
]

WAL_FSYNC = "etcd_disk_wal_fsync_duration_seconds"
BACKEND_COMMIT = "etcd_disk_backend_commit_duration_seconds"

MAX_TEXT = 8_000_000
"""Characters of one scrape. etcd's are some 100 kB; this is for what answers in its place."""
_MAX_BUCKETS = 200
_ENOUGH = 3  # samples that must lie beyond a quantile for it to be more than chance: 300 for a p99
_SLACK = 1e-9  # relative, for bounds that went through text

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)_(bucket|count|sum)(?:\{([^}]*)\})?[ \t]+([^ \t]+)(?:[ \t]+-?\d+)?\s*", re.ASCII)
_LE = re.compile(r'(?:^|,)\s*le="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Histogram:
    """``counts[i]`` samples were at most ``bounds[i]``; both ascend, and the last bound is infinite. Seconds."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Increase:
    """What was added over some scrapes."""

    histogram: Histogram
    resets: int = 0
    """How often the counters began again; the samples between the last scrape before and that are lost."""

    @property
    def samples(self) -> float:
        return self.histogram.counts[-1]


class QuantileStanding(StrEnum):
    ESTIMATE = "estimate"
    TOO_FEW = "too-few"
    """Samples, for a statement about that quantile."""
    BEYOND = "beyond"
    """The last finite bound: ``low`` is all that is known."""


@dataclass(frozen=True, slots=True)
class Quantile:
    standing: QuantileStanding
    samples: float
    seconds: float = 0.0
    """0 if there are too few samples; the last finite bound if it is beyond."""
    low: float = 0.0
    high: float = math.inf


@dataclass(frozen=True, slots=True)
class Exceedances:
    """How many samples were above a bound; one number twice if it is a bound of a bucket."""

    least: float
    most: float


def parse(text: str, names: Collection[str]) -> Mapping[str, Histogram]:
    """Those of ``names`` that are in the Prometheus text format. Series that differ in other labels are added up.

    ``Retryable`` (``MetricsInvalid``) if one of them is there and makes no sense: half a page, or not its author's.
    """
    if len(text) > MAX_TEXT:
        raise _invalid(f"more than {MAX_TEXT} characters")
    buckets: dict[str, dict[float, float]] = {}
    totals: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith(tuple(names)) or not (match := _LINE.fullmatch(line)) or match[1] not in names:
            continue
        name, part, labels, value = match[1], match[2], match[3] or "", _number(match[4])
        if part == "count":
            totals[name] = totals.get(name, 0.0) + value
        elif part == "bucket" and (le := _LE.search(labels)):
            series = buckets.setdefault(name, {})
            bound = _number(le[1])
            series[bound] = series.get(bound, 0.0) + value
            if len(series) > _MAX_BUCKETS:
                raise _invalid(f"{name}: more than {_MAX_BUCKETS} buckets")
    return {name: _histogram(name, series, totals.get(name)) for name, series in buckets.items()}


def _histogram(name: str, series: Mapping[float, float], total: float | None) -> Histogram:
    bounds = tuple(sorted(series))
    counts = tuple(series[bound] for bound in bounds)
    if bounds[-1] != math.inf:
        raise _invalid(f"{name}: no bucket without a bound")
    if counts[0] < 0 or any(a > b for a, b in pairwise(counts)):
        raise _invalid(f"{name}: counts that do not ascend")
    if total is not None and total != counts[-1]:
        raise _invalid(f"{name}: {total:g} samples, but {counts[-1]:g} in the buckets")
    return Histogram(bounds, counts)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _invalid(f"{text[:40]!r} is no number") from None
    if math.isnan(value):
        raise _invalid("NaN where a number must be")
    return value


def _invalid(what: str) -> Retryable:
    return Retryable(f"metrics: {what}", reason=Reason.METRICS_INVALID)


def increase(scrapes: Sequence[Histogram]) -> Increase | None:
    """Over consecutive scrapes, oldest first. None if there are not two, and so no time between them.

    Where a counter fell, or the buckets are others, the process is a new one: its counts began at zero, as PromQL's
    ``increase`` has it.
    """
    if len(scrapes) < 2:
        return None
    resets = 0
    bounds = scrapes[-1].bounds
    sums = [0.0] * len(bounds)
    for earlier, later in pairwise(scrapes):
        anew = earlier.bounds != later.bounds or any(b < a for a, b in zip(earlier.counts, later.counts, strict=True))
        resets += anew
        if later.bounds != bounds:
            sums = [0.0] * len(bounds)  # counted in other buckets: cannot be added to these
            continue
        before = [0.0] * len(bounds) if anew else earlier.counts
        sums = [total + b - a for total, a, b in zip(sums, before, later.counts, strict=True)]
    return Increase(Histogram(bounds, tuple(sums)), resets)


def quantile(q: float, over: Increase) -> Quantile:
    """``q`` from 0 to 1, such as 0.99."""
    bounds, counts, samples = over.histogram.bounds, over.histogram.counts, over.samples
    if not samples or samples * (1 - q) < _ENOUGH * (1 - _SLACK):
        return Quantile(QuantileStanding.TOO_FEW, samples)
    rank = q * samples
    at = next(index for index, count in enumerate(counts) if count >= rank)
    low = bounds[at - 1] if at else 0.0
    if bounds[at] == math.inf:
        return Quantile(QuantileStanding.BEYOND, samples, low, low, math.inf)
    before = counts[at - 1] if at else 0.0
    share = (rank - before) / (counts[at] - before)
    return Quantile(QuantileStanding.ESTIMATE, samples, low + (bounds[at] - low) * share, low, bounds[at])


def above(bound: float, over: Increase) -> Exceedances:
    """Samples above ``bound`` seconds."""
    bounds, counts, samples = over.histogram.bounds, over.histogram.counts, over.samples
    sure = next(count for b, count in zip(bounds, counts, strict=True) if b >= bound * (1 - _SLACK))
    below = [c for b, c in zip(bounds, counts, strict=True) if b <= bound * (1 + _SLACK)]
    return Exceedances(samples - sure, samples - (below[-1] if below else 0.0))
