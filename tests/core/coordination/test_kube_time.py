# SPDX-License-Identifier: Apache-2.0
"""Times as Kubernetes writes them, and what answers tell about the server's clock."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.core.coordination.kube_time import (
    MAX_AGE,
    ServerClock,
    Uncertain,
    http_date,
    micro_time,
    parse_time,
    seconds_time,
)

EPOCHS = st.floats(min_value=0, max_value=4e9)


@given(EPOCHS)
def test_a_micro_time_has_exactly_six_digits_and_is_the_time(epoch: float) -> None:
    text = micro_time(epoch)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", text)
    assert parse_time(text) == pytest.approx(epoch, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        ("2026-11-21T09:00:00Z", 1795251600.0),
        ("2026-11-21T09:00:00.500000Z", 1795251600.5),
        ("2026-11-21T10:00:00+01:00", 1795251600.0),
        ("2026-11-21T09:00:00", None),  # whose nine o'clock?
        ("", None),
        ("soon", None),
    ],
)
def test_parse_time(text: str, epoch: float | None) -> None:
    assert parse_time(text) == epoch


@pytest.mark.finding(
    "daemon: no bug ends it", "A time in a Lease that cannot be written is limited to the years 1 to 9999."
)
@pytest.mark.parametrize("text", ["9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z"])
@pytest.mark.parametrize(
    "seconds", [0.0, 1.0, float(2**31), -float(2**31), 1e300, float("inf"), -float("inf"), float("nan")]
)
def test_a_time_that_cannot_be_written_becomes_the_nearest_one(text: str, seconds: float) -> None:
    epoch = parse_time(text)
    assert epoch is not None
    for written in (micro_time(epoch + seconds), seconds_time(epoch + seconds)):
        assert parse_time(written) is not None, written
        assert len(written.split("-")[0]) == 4


def test_http_date() -> None:
    assert http_date("Sat, 21 Nov 2026 09:00:00 GMT") == 1795251600.0
    assert http_date("yesterday") is None
    assert http_date("") is None


def test_nothing_is_known_before_an_answer() -> None:
    with pytest.raises(Uncertain, match="sends no time"):
        ServerClock().earliest(0.0)
    with pytest.raises(Uncertain):
        ServerClock().latest(0.0)


@given(
    offset=st.floats(min_value=-1e9, max_value=4e9),
    answers=st.lists(st.tuples(st.floats(0, 30), st.floats(0, 5), st.floats(0, 1)), min_size=1, max_size=20),
)
def test_the_bounds_hold_the_true_time(offset: float, answers: list[tuple[float, float, float]]) -> None:
    """Each answer: seconds after the last one, seconds it took, and at which part of those the server looked."""
    clock, steady = ServerClock(), 1000.0
    for later, took, part in answers:
        sent = steady + later
        steady = sent + took
        date = float(int((offset + sent + took * part) // 1))
        clock = clock.updated(date, sent, steady)
        assert clock.earliest(steady) <= offset + steady + 1e-3
        assert clock.latest(steady) >= offset + steady - 1e-3


def test_answers_narrow_the_bounds() -> None:
    clock = ServerClock().updated(100.0, 10.0, 10.1)
    assert clock.latest(0) - clock.earliest(0) == pytest.approx(1.1)
    clock = clock.updated(101.0, 10.3, 10.4)
    assert clock.latest(0) - clock.earliest(0) == pytest.approx(0.4)


@pytest.mark.parametrize("date", [5000.0, 20.0])
def test_a_server_whose_clock_was_set_is_measured_again(date: float) -> None:
    clock = ServerClock().updated(100.0, 10.0, 10.1).updated(date, 11.0, 11.1)
    assert (clock.earliest(11.1), clock.latest(11.0)) == (pytest.approx(date), pytest.approx(date + 1.0))


def test_old_bounds_do_not_narrow_new_ones() -> None:
    clock = ServerClock().updated(100.0, 10.0, 10.0)
    much_later = 10.0 + MAX_AGE + 1
    assert clock.updated(100.0 + MAX_AGE + 1.5, much_later, much_later).latest(0) == pytest.approx(92.5 - 1)
