"""Prometheus histograms: the latency of a process between two scrapes of its metrics.

A histogram counts since the start of the process, in buckets that contain all samples up to a bound, so the samples of
an interval are the difference of two scrapes. Quantiles are those of PromQL's ``histogram_quantile``: linear inside the
bucket, which is an estimate. The bounds of the bucket are kept beside it: those of etcd are powers of two in ms, so a
p99 between 8 and 16 may be below or above 10 ms. The number of samples above a bound is exact.
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

WAL_FSYNC = "etcd_disk_wal_fsync_duration_seconds"
BACKEND_COMMIT = "etcd_disk_backend_commit_duration_seconds"

# Characters of one scrape. etcd's are some 100 kB; this is for what answers in its place.
MAX_TEXT = 8_000_000
_MAX_BUCKETS = 200
# Samples that must lie beyond a quantile for it to be more than chance: 300 for a p99.
_ENOUGH = 3
# Relative, for bounds that went through text.
_SLACK = 1e-9

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)_(bucket|count|sum)(?:\{([^}]*)\})?[ \t]+([^ \t]+)(?:[ \t]+-?\d+)?\s*", re.ASCII)
_LE = re.compile(r'(?:^|,)\s*le="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Histogram:
    """``counts[i]`` samples were at most ``bounds[i]``; both ascend, and the last bound is infinite. Seconds."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Increase:
    """The increase over some scrapes."""

    histogram: Histogram
    # How often the counters began again; the samples between the last scrape before and that are lost.
    resets: int = 0

    @property
    def samples(self) -> float:
        return self.histogram.counts[-1]


class QuantileStanding(StrEnum):
    ESTIMATE = "estimate"
    # Samples, for a statement about that quantile.
    TOO_FEW = "too-few"
    # The last finite bound: ``low`` is all that is known.
    BEYOND = "beyond"


@dataclass(frozen=True, slots=True)
class Quantile:
    standing: QuantileStanding
    samples: float
    # 0 if there are too few samples; the last finite bound if it is beyond.
    seconds: float = 0.0
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
        # A page has thousands of lines of other metrics, which a comparison of the beginning skips faster than a
        # pattern.
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
    """Return the increase over consecutive scrapes, oldest first; None for fewer than two."""
    if len(scrapes) < 2:
        return None
    resets = 0
    bounds = scrapes[-1].bounds
    sums = [0.0] * len(bounds)
    for earlier, later in pairwise(scrapes):
        # If the buckets differ, or a counter decreased, the process was restarted and its counters began at zero.
        # PromQL's ``increase`` has the same rule.
        pairs = zip(earlier.counts, later.counts, strict=True)
        restarted = earlier.bounds != later.bounds or any(b < a for a, b in pairs)
        resets += restarted
        if later.bounds != bounds:
            # Samples of other buckets cannot be added to these.
            sums = [0.0] * len(bounds)
            continue
        before = [0.0] * len(bounds) if restarted else earlier.counts
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
