# SPDX-License-Identifier: Apache-2.0
"""When a host begins: its own time in a window, and no update that would end after it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.features.windows.decide.freeze import Frozen
from nodeagent.features.windows.decide.openings import Openings
from nodeagent.features.windows.decide.schedule import Opening, Schedule
from nodeagent.features.windows.decide.turn import ROOM, HostTurn, Obstacle, Terms, interval, share_of, turn
from nodeagent.features.windows.decide.window import Window, parse_windows
from tests.features.windows.decide.zones import moments, utc, zones

NOTHING = timedelta(0)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def openings(*windows: str, freezes: tuple[Frozen, ...] = ()) -> Openings:
    return Openings(Schedule(parse_windows(windows), UTC) if windows else None, freezes)


SPREAD = Terms(minutes(60), 0.5)
INSIDE = Terms(end_inside=True)


@pytest.mark.parametrize(
    ("terms", "needed", "now", "begins", "obstacle"),
    [
        (Terms(), 30, "01:59", "02:00", Obstacle.CLOSED),
        (Terms(), 30, "02:00", "02:00", None),
        (Terms(), 30, "03:59", "03:59", None),
        (Terms(), 30, "04:00", "26:00", Obstacle.CLOSED),
        # Half of the hosts begin in the first half hour.
        (SPREAD, 30, "01:59", "02:30", Obstacle.CLOSED),
        (SPREAD, 30, "02:29", "02:30", Obstacle.SPREAD),
        (SPREAD, 30, "02:30", "02:30", None),
        (SPREAD, 30, "03:59", "03:59", None),
        # What the host needs, and five minutes to begin, fit behind its time.
        (SPREAD, 95, "01:00", "02:10", Obstacle.CLOSED),
        (SPREAD, 600, "01:00", "02:00", Obstacle.CLOSED),
        (INSIDE, 30, "03:29", "03:29", None),
        (INSIDE, 30, "03:30", "26:00", Obstacle.SHORT),
        (INSIDE, 115, "02:04", "02:04", None),
        (INSIDE, 115, "02:05", "26:00", Obstacle.SHORT),
        (Terms(minutes(120), 0.999, end_inside=True), 30, "00:00", "03:24:54", Obstacle.CLOSED),
    ],
)
def test_a_window_of_two_hours(terms: Terms, needed: int, now: str, begins: str, obstacle: Obstacle | None) -> None:
    at, day = utc(f"2026-01-05T{now}"), "2026-01-06T02:00" if begins == "26:00" else f"2026-01-05T{begins}"
    found = turn(openings("02:00 120"), terms, minutes(needed), at)
    assert (found.begins, found.obstacle, found.fits) == (utc(day), obstacle, True)


def test_the_window_that_is_long_enough_is_waited_for() -> None:
    found = turn(openings("02:00 60", "1st sun 02:00 360"), INSIDE, minutes(90), utc("2026-01-05T02:00"))
    assert (found.begins, found.obstacle, found.fits) == (utc("2026-02-01T02:00"), Obstacle.SHORT, True)


def test_what_fits_in_no_window_begins_at_the_start_of_one() -> None:
    for now, begins, obstacle in (
        ("2026-01-05T01:00", "2026-01-05T02:00", Obstacle.CLOSED),
        ("2026-01-05T02:00", "2026-01-05T02:00", None),
        ("2026-01-05T02:14", "2026-01-05T02:14", None),
        ("2026-01-05T02:15", "2026-01-06T02:00", Obstacle.SHORT),
    ):
        found = turn(openings("02:00 60"), INSIDE, minutes(56), utc(now))
        assert (found.begins, found.obstacle, found.fits) == (utc(begins), obstacle, False)
    short = turn(openings("02:00 3"), INSIDE, minutes(56), utc("2026-01-05T02:02"))
    assert (short.obstacle, short.fits) == (None, False)


def test_a_freeze_says_until_when() -> None:
    freeze = Frozen(utc("2026-01-04T12:00"), utc("2026-01-07T12:00"), "audit")
    found = turn(openings("02:00 60", freezes=(freeze,)), Terms(), minutes(5), utc("2026-01-05T02:00"))
    within = Opening(utc("2026-01-08T02:00"), utc("2026-01-08T03:00"))
    assert found == HostTurn(within.begins, Obstacle.FROZEN, None, freeze, within)
    # Its end is the begin of an opening, over which the hosts are spread.
    found = turn(openings(freezes=(freeze,)), SPREAD, minutes(5), utc("2026-01-05T02:00"))
    assert (found.begins, found.obstacle) == (utc("2026-01-07T12:30"), Obstacle.FROZEN)
    # Before it begins, nothing begins that would end in it.
    found = turn(openings(freezes=(freeze,)), INSIDE, minutes(30), utc("2026-01-04T11:40"))
    assert (found.begins, found.obstacle) == (utc("2026-01-07T12:00"), Obstacle.SHORT)


def test_windows_that_never_open() -> None:
    assert turn(Openings(Schedule((), UTC)), Terms(), NOTHING, utc("2026-01-05T02:00")) == HostTurn(
        None, Obstacle.CLOSED
    )


def test_hosts_are_spread_evenly_and_keep_their_place() -> None:
    shares = [share_of(f"{number:032x}") for number in range(2000)]
    assert shares == [share_of(f"{number:032x}") for number in range(2000)]
    for tenth in range(10):
        assert 150 < sum(tenth / 10 <= share < (tenth + 1) / 10 for share in shares) < 250


windows = st.builds(Window, st.integers(0, 6), st.integers(0, 24 * 60 - 1), st.integers(1, 3000))
terms = st.builds(Terms, st.integers(0, 600).map(minutes), st.floats(0, 1, exclude_max=True), st.booleans())


@given(st.lists(windows, min_size=1, max_size=3), zones, moments, terms, st.integers(1, 900).map(minutes))
def test_what_must_hold_of_each_turn(
    given_windows: list[Window], zone: ZoneInfo, now: datetime, terms: Terms, needed: timedelta
) -> None:
    allowed = Openings(Schedule(given_windows, zone))
    found = turn(allowed, terms, needed, now)
    assert found.begins is not None, "no update waits without end"
    assert (found.obstacle is None) == (found.begins == now)
    assert allowed.windows is not None
    assert allowed.windows.is_open(found.begins)
    assert found.within is not None
    if terms.end_inside and found.fits:
        assert found.within.ends is None or found.begins + needed <= found.within.ends
    if not terms.end_inside:
        assert found.fits
    # It is asked again at the time that it named, and begins then.
    again = turn(allowed, terms, needed, found.begins)
    assert (again.obstacle, again.begins) == (None, found.begins)


@given(st.integers(1, 3000).map(minutes), terms, st.integers(1, 900).map(minutes), st.booleans())
def test_each_host_has_time_to_begin(length: timedelta, terms: Terms, needed: timedelta, fits: bool) -> None:
    begins = utc("2026-01-05T02:00")
    first, until = interval(Opening(begins, begins + length), terms, needed, fits=fits or not terms.end_inside)
    assert first is not None
    assert until is not None
    assert begins <= first <= max(until, begins)
    assert first == until or until - first >= min(ROOM, length), "a host that misses a second must not miss the window"


def test_an_opening_without_an_end_or_a_begin() -> None:
    begins = utc("2026-01-05T02:00")
    assert interval(Opening(begins, None), SPREAD, minutes(900), fits=True) == (begins + minutes(30), None)
    assert interval(Opening(None, begins), SPREAD, minutes(30), fits=True) == (None, begins)
    assert interval(Opening(None, begins), INSIDE, minutes(30), fits=True) == (None, begins - minutes(30))
    assert interval(Opening(), SPREAD, minutes(30), fits=True) == (None, None)
    assert list(islice(Openings(None).after(begins), 2)) == [Opening()]
