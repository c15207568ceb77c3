# SPDX-License-Identifier: Apache-2.0
"""The fence in the status and in the metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nodeagent.features.fence.decide.view import FenceView
from nodeagent.report.counters import Counters
from nodeagent.report.exposition import Family, MetricKind, Sample
from nodeagent.report.part_view import PartView
from nodeagent.report.status import Status

FENCE = Family(
    "nodeagent_fence_active", "1 while the fence limits a staging, 0 if it cannot. Absent outside of a staging."
)
FENCE_LIMIT = Family(
    "nodeagent_fence_write_limit_bytes_per_second", "Cap on the writes of a staging. Absent without a cap."
)
FENCE_P99 = Family(
    "nodeagent_fence_victim_fsync_p99_seconds",
    "p99 of etcd's recent fsyncs during a fenced staging. Absent if unknown.",
)

THROTTLED = Family(
    "nodeagent_fence_throttled_seconds_total", "Time in which a staging had a cap.", kind=MetricKind.COUNTER
)
SLOW_FSYNCS = Family(
    "nodeagent_fence_victim_slow_fsyncs_total",
    "Fsyncs of etcd over 100 ms during a fenced staging.",
    kind=MetricKind.COUNTER,
)


@dataclass(slots=True)
class FenceCounts:
    # Seconds that staging was under a cap.
    throttled: float = 0.0
    # Slow fsyncs of the protected etcd during a fence.
    slow_fsyncs: int = 0
    _last: FenceView | None = None

    def add(self, view: FenceView | None) -> None:
        """Add the counts of a fence, which start at zero with each fence."""
        if view is not None:
            before = self._last if self._last is not None and self._last.seconds <= view.seconds else FenceView(False)
            self.throttled += max(0.0, view.throttled - before.throttled)
            self.slow_fsyncs += max(0, view.exceedances - before.exceedances)
        self._last = view


def _samples(status: Status) -> Iterator[Sample]:
    view = status.part(FenceView)
    if view is None:
        return
    yield FENCE.at(view.active)
    if view.write_bps is not None:
        yield FENCE_LIMIT.at(view.write_bps)
    if view.p99 is not None:
        yield FENCE_P99.at(view.p99)


def _counter_samples(counters: Counters) -> Iterator[Sample]:
    counts = counters.part(FenceCounts)
    yield THROTTLED.at(counts.throttled)
    yield SLOW_FSYNCS.at(counts.slow_fsyncs)


PARTS = (
    PartView(
        part=FenceView,
        key="fence",
        to_json=lambda view, _: view.to_dict(),
        families=(FENCE, FENCE_LIMIT, FENCE_P99),
        samples=_samples,
        counter_families=(THROTTLED, SLOW_FSYNCS),
        counter_samples=_counter_samples,
    ),
)
