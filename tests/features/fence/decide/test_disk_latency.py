# SPDX-License-Identifier: Apache-2.0
"""The latency of etcd's disk over a staging, from pages of its metrics."""

from __future__ import annotations

import json
import math

from nodeagent.features.fence.decide.disk_latency import DiskLatency
from nodeagent.features.fence.decide.histogram import BACKEND_COMMIT, WAL_FSYNC, Histogram

BOUNDS = (0.008, 0.128, math.inf)


def page(*counts: float, metric: str = WAL_FSYNC) -> dict[str, Histogram]:
    return {metric: Histogram(BOUNDS, counts)}


def test_before_during_and_after() -> None:
    latency = DiskLatency()
    latency.add(page(10_000, 10_000, 10_000))
    latency.add(page(10_000, 10_400, 10_500))
    latency.end_of_staging()
    latency.add(page(10_050, 10_450, 10_550))
    assert latency.summary() == {
        "wal_fsync": {
            "before": {"samples": 10_000, "slow": 0, "p99_ms": 7.9},
            "during": {"samples": 500, "slow": 100, "p99_ms": 128.0},
            "after": {"samples": 50, "slow": 0, "p99_ms": None},
        }
    }


def test_a_restart_of_etcd_and_a_page_without_the_histogram() -> None:
    latency = DiskLatency()
    latency.add(page(1000, 1000, 1000, metric=BACKEND_COMMIT))
    latency.add({})
    latency.add(page(10, 10, 10, metric=BACKEND_COMMIT))
    assert latency.summary()["backend_commit"]["during"] == {"samples": 10, "slow": 0, "p99_ms": None}


def test_nothing_to_summarize() -> None:
    assert json.dumps(DiskLatency().summary()) == "{}"
