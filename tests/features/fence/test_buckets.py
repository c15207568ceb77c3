# SPDX-License-Identifier: Apache-2.0
"""The bounds of figures that come from the buckets of a histogram."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration.bench.fence.buckets import Exceedances, QuantileStanding, bounded_quantile, exceedances
from nodeagent.features.fence.decide.histogram import Histogram
from tests.features.fence.decide.test_histogram import BOUNDS, counted, histogram, latencies


def test_a_quantile_has_the_bounds_of_its_bucket() -> None:
    found = bounded_quantile(0.99, histogram(800, 950, 1000))
    assert found.standing is QuantileStanding.ESTIMATE
    assert (found.low, found.high, found.samples) == (0.002, 0.004, 1000)


def test_a_quantile_beyond_the_last_bound() -> None:
    found = bounded_quantile(0.99, Histogram(BOUNDS, (*[900.0] * 14, 1000.0)))
    assert (found.standing, found.seconds, found.high) == (QuantileStanding.BEYOND, 8.192, math.inf)


@pytest.mark.parametrize(("samples", "standing"), [(0, "too-few"), (299, "too-few"), (300, "estimate")])
def test_too_few_samples_are_marked(samples: int, standing: str) -> None:
    found = bounded_quantile(0.99, histogram(samples))
    assert (found.standing, found.samples) == (standing, samples)


@pytest.mark.parametrize(
    ("bound", "least", "most"), [(0.004, 200, 200), (0.003, 200, 250), (0.0005, 400, 1200), (9, 0, 0)]
)
def test_samples_above_a_bound(bound: float, least: float, most: float) -> None:
    assert exceedances(bound, histogram(800, 950, 1000, 1200)) == Exceedances(least, most)


@given(latencies, st.sampled_from([0.5, 0.9, 0.99]))
def test_the_true_quantile_is_in_the_bucket(samples: list[float], q: float) -> None:
    found = bounded_quantile(q, counted(samples))
    true = sorted(samples)[math.ceil(q * len(samples) - 1e-9) - 1]
    assert found.low < true <= found.high
    assert found.low <= found.seconds <= found.high


@given(latencies, st.integers(1, 20_000))
def test_the_true_number_is_between(samples: list[float], ms: int) -> None:
    found = exceedances(ms / 1000, counted(samples))
    assert found.least <= sum(1 for sample in samples if sample > ms / 1000) <= found.most
