# SPDX-License-Identifier: Apache-2.0
"""The metrics of the fence."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.features.fence.decide.view import FenceView
from nodeagent.features.fence.events import FenceChanged
from nodeagent.report.counters import Counters
from nodeagent.report.event_counts import observe
from nodeagent.report.status import Status
from nodeagent.update.ports.events import UpdateContext
from nodeagent.update.states import Phase
from tests.report.test_metrics import page


def status_of(view: FenceView | None) -> Status:
    return Status() if view is None else Status().with_part(view)


def test_the_fence() -> None:
    first = FenceView(True, write_bps=16_000_000, p99=0.0031, exceedances=2, throttled=10.0, seconds=30.0)
    views = [
        FenceView(True, seconds=0.5),
        first,
        replace(first, exceedances=3, throttled=12.5, seconds=33.0),
        None,
        FenceView(True, exceedances=1, throttled=1.0, seconds=2.0),
    ]
    counters = Counters()
    for view in views:
        observe(counters, FenceChanged(UpdateContext(Phase.STAGING), view), status_of(view), 0.0)
    found = page(status_of(first), counters)
    assert found["nodeagent_fence_active",] == 1
    assert found["nodeagent_fence_write_limit_bytes_per_second",] == 16e6
    assert found["nodeagent_fence_victim_fsync_p99_seconds",] == 0.0031
    assert found["nodeagent_fence_throttled_seconds_total",] == 13.5
    assert found["nodeagent_fence_victim_slow_fsyncs_total",] == 4
    without = page(status_of(FenceView(False, reason="NoIoController")))
    assert without["nodeagent_fence_active",] == 0
    assert ("nodeagent_fence_write_limit_bytes_per_second",) not in without
    assert ("nodeagent_fence_active",) not in page(Status())
