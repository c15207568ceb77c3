# SPDX-License-Identifier: Apache-2.0
"""Windows of a month against a calendar that is counted day by day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeagent.features.windows.decide.schedule import Schedule
from nodeagent.features.windows.decide.window import ANY, LAST, WEEKDAY, Window, every, parse_windows
from tests.features.windows.decide.zones import moments, utc, zones

ONE_DAY = timedelta(days=1)


def counted(day: date, which: int, place: int) -> bool:
    """Count the days of the month of ``day``, one after another."""

    def matches(other: date) -> bool:
        return which == ANY or (other.isoweekday() <= 5 if which == WEEKDAY else other.isoweekday() == which + 1)

    if not matches(day):
        return False
    before = after = 0
    other = day - ONE_DAY
    while other.month == day.month:
        before, other = before + matches(other), other - ONE_DAY
    other = day + ONE_DAY
    while other.month == day.month:
        after, other = after + matches(other), other + ONE_DAY
    return after == 0 if place == LAST else before == place - 1


places = st.one_of(
    st.tuples(st.integers(0, WEEKDAY), st.sampled_from([LAST, 1, 2, 3, 4, 5])),
    st.tuples(st.just(ANY), st.sampled_from([LAST, *range(1, 32)])),
)
monthly = st.builds(
    lambda place, start, length: Window(place[0], start, length, place[1]),
    places,
    st.integers(0, 24 * 60 - 1),
    st.integers(1, 3000),
)


@given(places, st.dates(date(2000, 1, 1), date(2099, 12, 31)))
@example((ANY, LAST), date(2028, 2, 29))
@example((ANY, 29), date(2100, 2, 28))
@example((3, 5), date(2024, 2, 29))  # a fifth Thursday in a February
def test_the_days_of_a_month(place: tuple[int, int], day: date) -> None:
    assert Window(place[0], 0, 60, place[1]).begins_on(day) == counted(day, *place)


@given(monthly, zones, moments)
def test_local_time_decides(window: Window, zone: ZoneInfo, at: datetime) -> None:
    wall = at.astimezone(zone).replace(tzinfo=None)
    starts = [
        datetime.combine(day, datetime.min.time()) + timedelta(minutes=window.start)
        for back in range(5)
        if counted(day := wall.date() - back * ONE_DAY, window.day, window.place)
    ]
    expected = any(begin <= wall < begin + timedelta(minutes=window.length) for begin in starts)
    assert Schedule([window], zone).is_open(at) == expected


@given(st.lists(monthly, min_size=1, max_size=2), zones, moments)
def test_the_next_change_is_the_first(windows: list[Window], zone: ZoneInfo, at: datetime) -> None:
    schedule = Schedule(windows, zone)
    state, change = schedule.is_open(at), schedule.next_change(at)
    assert change is not None
    assert schedule.is_open(change) != state
    assert schedule.is_open(change - timedelta(seconds=1)) == state
    # Windows are at least a minute long, and a day is read at their starts and ends only: any state lasts until there.
    moment, days = at, 0
    while moment < change and days < 130:
        assert schedule.is_open(moment) == state
        moment, days = moment + timedelta(hours=7, minutes=13), days + 1


def test_a_fifth_tuesday_and_a_31st_are_waited_for() -> None:
    for text, opens in (
        ("5th tue 02:00 60", ["2026-03-31T02:00", "2026-06-30T02:00", "2026-09-29T02:00", "2026-12-29T02:00"]),
        ("31st 02:00 60", ["2026-01-31T02:00", "2026-03-31T02:00", "2026-05-31T02:00", "2026-07-31T02:00"]),
        ("last 02:00 60", ["2026-01-31T02:00", "2026-02-28T02:00", "2026-03-31T02:00", "2026-04-30T02:00"]),
        ("2nd tue 02:00 60", ["2026-01-13T02:00", "2026-02-10T02:00", "2026-03-10T02:00", "2026-04-14T02:00"]),
        ("1st weekday 02:00 60", ["2026-01-01T02:00", "2026-02-02T02:00", "2026-03-02T02:00", "2026-04-01T02:00"]),
        ("last weekday 02:00 60", ["2026-01-30T02:00", "2026-02-27T02:00", "2026-03-31T02:00", "2026-04-30T02:00"]),
    ):
        schedule, at, seen = Schedule(parse_windows([text]), UTC), utc("2026-01-01T00:00"), []
        for _ in opens:
            found = schedule.opens(at)
            assert found is not None
            seen.append(found)
            at = found + timedelta(hours=2)
        assert seen == [utc(each) for each in opens], text


def test_weekly_and_monthly_windows_are_one_schedule() -> None:
    schedule = Schedule(parse_windows(["2nd tue 01:00 60", "tue 02:00 60"]), UTC)
    opening = schedule.opening(utc("2026-01-12T00:00"))
    assert opening is not None
    assert (opening.begins, opening.ends) == (utc("2026-01-13T01:00"), utc("2026-01-13T03:00"))
    inside = schedule.opening(utc("2026-01-13T02:30"))
    assert inside == opening


def test_as_people_write_them() -> None:
    assert parse_windows(["patch-day = 2nd,LAST Tuesday,wed 02:00 60".replace("LAST", "last")]) == tuple(
        Window(day, 120, 60, place) for place in (LAST, 2) for day in (1, 2)
    )
    assert every([], "02:00", 60, ["21st"]) == (Window(ANY, 120, 60, 21),)
    assert parse_windows(["1st Weekday 02:00 60"]) == (Window(WEEKDAY, 120, 60, 1),)


@pytest.mark.parametrize(
    "text",
    [
        *("0th tue 02:00 60", "6th tue 02:00 60", "32nd 02:00 60", "weekday 02:00 60", "tue 2nd 02:00 60"),
        *("tue,last 02:00 60", "2nd,tue 02:00 60 60", "2 tue 02:00 60", "last noday 02:00 60", "6th weekday 02:00 60"),
        "٢nd tue 02:00 60",
    ],
)
def test_what_is_no_window(text: str) -> None:
    with pytest.raises(ValueError):
        parse_windows([text])


def test_a_day_that_no_window_has() -> None:
    for day, place in ((7, 0), (8, 0), (9, 1), (1, 6), (8, 32), (1, -2), (-1, 0)):
        with pytest.raises(ValueError, match="invalid day"):
            Window(day, 0, 60, place)
