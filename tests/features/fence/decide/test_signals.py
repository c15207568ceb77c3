# SPDX-License-Identifier: Apache-2.0
"""The signals of the two sources, and the one that counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.features.fence.decide.histogram import Histogram
from nodeagent.features.fence.decide.signals import Reading, Source, Strain, of_etcd, of_probe, target, weigh

BOUNDS = (*(0.001 * 2**n for n in range(14)), math.inf)


def etcd(below_8: int, below_16: int, below_128: int, everything: int) -> Histogram:
    return Histogram((0.008, 0.016, 0.128, math.inf), (below_8, below_16, below_128, everything))


@pytest.mark.parametrize(("p99", "aim"), [(None, 0.008), (0.0005, 0.008), (0.004, 0.012), (0.017, 0.051), (2, 0.064)])
def test_the_target_follows_the_idle_disk(p99: float | None, aim: float) -> None:
    assert target(p99) == pytest.approx(aim)


@pytest.mark.parametrize(
    ("over", "aim", "strain", "why"),
    [
        (etcd(100, 100, 100, 100), 0.008, Strain.CALM, "0 of 100 fsyncs over 8 ms"),
        (etcd(99, 100, 100, 100), 0.008, Strain.CALM, "1 of 100 fsyncs over 8 ms"),
        (etcd(98, 100, 100, 100), 0.008, Strain.STRAINED, "2 of 100 fsyncs over 8 ms"),
        (etcd(998, 1000, 1000, 1000), 0.008, Strain.CALM, "2 of 1000 fsyncs over 8 ms"),
        (etcd(99, 99, 99, 100), 0.008, Strain.STALLED, "1 of 100 fsyncs over 128 ms"),
        # 12 ms is inside a bucket: only what was over 16 ms surely exceeded it
        (etcd(50, 100, 100, 100), 0.012, Strain.CALM, "0 of 100 fsyncs over 12 ms"),
        (etcd(50, 98, 100, 100), 0.012, Strain.STRAINED, "2 of 100 fsyncs over 12 ms"),
    ],
)
def test_etcd(over: Histogram, aim: float, strain: Strain, why: str) -> None:
    assert of_etcd(7.0, over, aim) == Reading(Source.ETCD, 7.0, strain, why)


def test_an_etcd_that_syncs_nothing_says_nothing() -> None:
    assert of_etcd(7.0, etcd(0, 0, 0, 0), 0.008) is None


@pytest.mark.parametrize(
    ("latencies", "waiting", "strain"),
    [
        ([0.001] * 20, 0, Strain.CALM),
        ([*[0.001] * 20, 0.05], 0, Strain.CALM),
        ([*[0.001] * 20, 0.05, 0.05], 0, Strain.STRAINED),
        ([*[0.001] * 20, 0.05], 0.05, Strain.STRAINED),
        ([*[0.001] * 20, 0.2], 0, Strain.STALLED),
        ([0.001] * 20, 0.2, Strain.STALLED),
        ([], 0.2, Strain.STALLED),
    ],
)
def test_the_probe(latencies: list[float], waiting: float, strain: Strain) -> None:
    found = of_probe(7.0, latencies, waiting, 0.008)
    assert found is not None
    assert found.strain is strain


def test_a_probe_that_did_nothing_says_nothing() -> None:
    assert of_probe(7.0, [], 0.001, 0.008) is None


def reading(source: Source, at: float, strain: Strain) -> Reading:
    return Reading(source, at, strain, "")


def test_the_worse_of_what_is_measured_counts() -> None:
    probe, calm = reading(Source.PROBE, 9, Strain.STALLED), reading(Source.ETCD, 10, Strain.CALM)
    assert weigh([calm, probe], 10, stale=5) == probe


readings = st.lists(
    st.builds(Reading, st.sampled_from(Source), st.floats(0, 20), st.sampled_from(Strain), st.just("")), max_size=6
)


@given(readings, st.floats(0, 20))
def test_nothing_stale_is_heard(found: list[Reading], now: float) -> None:
    heard = weigh(found, now, stale=5)
    fresh = [each for each in found if now - 5 <= each.at <= now]
    assert (heard is None) == (not fresh)
    assert heard is None or heard in fresh
