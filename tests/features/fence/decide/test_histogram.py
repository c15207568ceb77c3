# SPDX-License-Identifier: Apache-2.0
"""Histograms in Prometheus' text format, and what two scrapes of them say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.errors import Retryable
from nodeagent.features.fence.decide.histogram import (
    BACKEND_COMMIT,
    WAL_FSYNC,
    Histogram,
    above,
    increase,
    parse,
    quantile,
    restarted,
)

BOUNDS = (*(0.001 * 2**n for n in range(14)), math.inf)
"""etcd's, for both histograms."""

# As etcd 3.5 prints them, shortened
PAGE = """\
# HELP etcd_disk_wal_fsync_duration_seconds The latency distributions of fsync called by WAL.
# TYPE etcd_disk_wal_fsync_duration_seconds histogram
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"} 4016
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.002"} 4.38e+03
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 4403
etcd_disk_wal_fsync_duration_seconds_sum 3.1277
etcd_disk_wal_fsync_duration_seconds_count 4403
# TYPE etcd_disk_wal_write_bytes_total gauge
etcd_disk_wal_write_bytes_total 1.7e+06
etcd_disk_wal_fsync_duration_seconds_bucket_of_another{le="0.001"} nonsense
"""


def histogram(*counts: float) -> Histogram:
    """Return a histogram with these counts, the last one in all further buckets."""
    return Histogram(BOUNDS, (*counts, *[counts[-1]] * (len(BOUNDS) - len(counts))))


def page(name: str, found: Histogram) -> str:
    lines = [
        f'{name}_bucket{{le="{"+Inf" if b == math.inf else b}"}} {c:g}'
        for b, c in zip(found.bounds, found.counts, strict=True)
    ]
    return "\n".join([*lines, f"{name}_count {found.counts[-1]:g}", ""])


def test_what_etcd_prints_is_read() -> None:
    found = parse(PAGE, [WAL_FSYNC, BACKEND_COMMIT])
    assert found == {WAL_FSYNC: Histogram((0.001, 0.002, math.inf), (4016.0, 4380.0, 4403.0))}


def test_series_are_added_up_and_timestamps_passed_over() -> None:
    text = "\n".join(
        f'x_bucket{{instance="{who}",le="{le}"}} {count} 1700000000000'
        for who in "ab"
        for le, count in (("0.5", 3), ("+Inf", 4))
    )
    assert parse(text, ["x"])["x"].counts == (6.0, 8.0)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('x_bucket{le="0.5"} 3\n', "without a bound"),
        ('x_bucket{le="0.5"} 3\nx_bucket{le="+Inf"} 2\n', "ascend"),
        ('x_bucket{le="0.5"} -3\nx_bucket{le="+Inf"} 2\n', "ascend"),
        ('x_bucket{le="0.5"} 3\nx_bucket{le="+Inf"} 4\nx_count 5\n', "5 samples"),
        ('x_bucket{le="0.5"} three\n', "no number"),
        ('x_bucket{le="half"} 3\n', "no number"),
        ('x_bucket{le="+Inf"} NaN\n', "NaN"),
        ("\n".join(f'x_bucket{{le="{n}"}} 1' for n in range(1000)), "buckets"),
        ("x" * 8_000_001, "characters"),
    ],
)
def test_nonsense_is_an_error(text: str, word: str) -> None:
    with pytest.raises(Retryable, match=word) as caught:
        parse(text, ["x"])
    assert caught.value.reason == "MetricsInvalid"


def test_the_difference_of_two_scrapes() -> None:
    assert increase([histogram(10, 20), histogram(15, 40)]) == histogram(5, 20)


def test_one_scrape_says_nothing() -> None:
    assert increase([histogram(10, 20)]) is None


def test_a_restart_begins_at_zero() -> None:
    found = increase([histogram(10, 20), histogram(15, 40), histogram(1, 2), histogram(4, 6)])
    assert found == histogram(9, 26)


def test_a_restart_that_only_one_bucket_shows() -> None:
    assert increase([histogram(10, 20), histogram(9, 100)]) == histogram(9, 100)


def test_other_buckets_are_another_process() -> None:
    found = increase([Histogram((1.0, math.inf), (1, 9)), histogram(2, 3), histogram(4, 8)])
    assert found == histogram(4, 8)
    assert increase([histogram(2, 3), histogram(4, 8), Histogram((1.0, math.inf), (1, 9))]) == Histogram(
        (1.0, math.inf), (1, 9)
    )


def test_a_restart_is_a_counter_that_decreases_or_another_list_of_buckets() -> None:
    assert not restarted(histogram(10, 20), histogram(10, 20))
    assert restarted(histogram(10, 20), histogram(9, 100))
    assert restarted(Histogram((1.0, math.inf), (1, 9)), histogram(2, 30))


def test_a_quantile_is_interpolated_in_its_bucket() -> None:
    # rank 990 is 40 of 50 into the bucket from 2 to 4 ms
    assert quantile(0.99, histogram(800, 950, 1000)) == pytest.approx(0.002 + 0.002 * 40 / 50)


def test_the_first_bucket_begins_at_zero() -> None:
    assert quantile(0.5, histogram(1000)) == pytest.approx(0.0005)


def test_beyond_the_last_bound() -> None:
    assert quantile(0.99, Histogram(BOUNDS, (*[900.0] * 14, 1000.0))) == 8.192


@pytest.mark.parametrize(("samples", "enough"), [(0, False), (299, False), (300, True)])
def test_too_few_samples_have_no_quantile(samples: int, enough: bool) -> None:
    assert (quantile(0.99, histogram(samples)) is not None) is enough


def test_the_samples_above_a_bound() -> None:
    some = histogram(800, 950, 1000, 1200)
    assert above(0.004, some) == above(0.0040000000000000001, some)
    assert [above(bound, some) for bound in (0.004, 0.003, 0.0005, 9)] == [200, 200, 400, 0]


# In ms, so that some are exactly on a bound; each forty times, so that there are enough of them
latencies = st.lists(st.integers(1, 20_000), min_size=8, max_size=10).map(lambda ms: [m / 1000 for m in ms] * 40)


def counted(samples: list[float]) -> Histogram:
    ordered = sorted(samples)
    return Histogram(BOUNDS, tuple(float(sum(1 for s in ordered if s <= bound)) for bound in BOUNDS))


@given(latencies, st.integers(1, 20_000))
def test_no_more_samples_than_there_are_are_above_a_bound(samples: list[float], ms: int) -> None:
    assert above(ms / 1000, counted(samples)) <= sum(1 for sample in samples if sample > ms / 1000)


@given(latencies, latencies)
def test_text_and_back(before: list[float], during: list[float]) -> None:
    scrapes = [parse(page("x", counted(samples)), ["x"])["x"] for samples in (before, before + during)]
    assert increase(scrapes) == counted(during)
