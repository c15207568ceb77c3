# SPDX-License-Identifier: Apache-2.0
"""Prometheus histograms: the latency of a process between two scrapes of its metrics.

A histogram counts since the start of the process, in buckets that contain all samples up to a bound, so the samples of
an interval are the difference of two scrapes. Quantiles are those of PromQL's ``histogram_quantile``: linear inside the
bucket, which is an estimate: those of etcd are powers of two in ms, so a p99 between 8 and 16 may be below or above 10
ms. The number of samples above a bound of a bucket is exact.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nodeagent.errors import Retryable
from nodeagent.features.fence.reasons import FenceReason

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

    @property
    def samples(self) -> float:
        return self.counts[-1]


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
    return Retryable(f"metrics: {what}", reason=FenceReason.METRICS_INVALID)


def restarted(earlier: Histogram, later: Histogram) -> bool:
    """Return whether the process was restarted between two scrapes, so that its counters began at zero.

    The buckets differ, or a counter decreased. PromQL's ``increase`` has the same rule.
    """
    return earlier.bounds != later.bounds or any(b < a for a, b in zip(earlier.counts, later.counts, strict=True))


def increase(scrapes: Sequence[Histogram]) -> Histogram | None:
    """Return the increase over consecutive scrapes, oldest first; None for fewer than two.

    The samples between a restart and the last scrape before it are lost.
    """
    if len(scrapes) < 2:
        return None
    bounds = scrapes[-1].bounds
    sums = [0.0] * len(bounds)
    for earlier, later in pairwise(scrapes):
        if later.bounds != bounds:
            # Samples of other buckets cannot be added to these.
            sums = [0.0] * len(bounds)
            continue
        before = [0.0] * len(bounds) if restarted(earlier, later) else earlier.counts
        sums = [total + b - a for total, a, b in zip(sums, before, later.counts, strict=True)]
    return Histogram(bounds, tuple(sums))


def quantile(q: float, over: Histogram) -> float | None:
    """Return the quantile ``q`` from 0 to 1, such as 0.99, in seconds; None if there are too few samples.

    The last finite bound if it is beyond that.
    """
    if not over.samples or over.samples * (1 - q) < _ENOUGH * (1 - _SLACK):
        return None
    rank = q * over.samples
    at = next(index for index, count in enumerate(over.counts) if count >= rank)
    low = over.bounds[at - 1] if at else 0.0
    if over.bounds[at] == math.inf:
        return low
    before = over.counts[at - 1] if at else 0.0
    share = (rank - before) / (over.counts[at] - before)
    return low + (over.bounds[at] - low) * share


def above(bound: float, over: Histogram) -> float:
    """Return how many samples were above ``bound`` seconds for sure: exact for a bound of a bucket, else the least."""
    pairs = zip(over.bounds, over.counts, strict=True)
    return over.samples - next(count for b, count in pairs if b >= bound * (1 - _SLACK))
