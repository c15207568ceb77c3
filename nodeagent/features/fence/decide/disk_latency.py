# SPDX-License-Identifier: Apache-2.0
"""Summarize the latency of etcd's disk before, during and after a staging, for the history of updates."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from nodeagent.features.fence.decide.histogram import BACKEND_COMMIT, WAL_FSYNC, Histogram, above, increase, quantile

HISTOGRAMS: Final[Mapping[str, str]] = {"wal_fsync": WAL_FSYNC, "backend_commit": BACKEND_COMMIT}

# Seconds, the first bound of etcd's buckets above its own warning (100 ms), so that the count is exact.
SLOW: Final = 0.128


class LatencySpan(StrEnum):
    # From the start of etcd to the first page.
    BEFORE = "before"
    DURING = "during"
    # While the last writes of the staging reach the disk.
    AFTER = "after"


class DiskLatency:
    """Collects pages of etcd's metrics. The last page of a span is the first one of the next."""

    def __init__(self) -> None:
        self._span = LatencySpan.DURING
        self._pages: dict[tuple[str, LatencySpan], list[Histogram]] = {}
        self._last: dict[str, Histogram] = {}

    def end_of_staging(self) -> None:
        self._span = LatencySpan.AFTER

    def add(self, page: Mapping[str, Histogram]) -> None:
        for name, metric in HISTOGRAMS.items():
            if (histogram := page.get(metric)) is None:
                continue
            if name not in self._last:
                # The counters begin at zero when etcd starts.
                zero = Histogram(histogram.bounds, tuple(0.0 for _ in histogram.counts))
                self._pages[name, LatencySpan.BEFORE] = [zero, histogram]
            else:
                self._pages.setdefault((name, self._span), [self._last[name]]).append(histogram)
            self._last[name] = histogram

    def summary(self) -> dict[str, dict[str, Any]]:
        """Return the optional key ``etcd_disk`` of ``history/v1``.

        For each histogram and span the number of samples, those over 128 ms, and the p99 in milliseconds, null if there
        are too few samples for one.
        """
        summary: dict[str, dict[str, Any]] = {}
        for (name, span), pages in self._pages.items():
            if (over := increase(pages)) is None:
                continue
            p99 = quantile(0.99, over)
            summary.setdefault(name, {})[span] = {
                "samples": round(over.samples),
                "slow": round(above(SLOW, over)),
                "p99_ms": None if p99 is None else round(p99 * 1000, 1),
            }
        return summary
