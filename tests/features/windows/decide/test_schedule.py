# SPDX-License-Identifier: Apache-2.0
"""Windows against a clock that is read minute by minute, in zones that make it hard."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeagent.features.windows.decide import schedule as module
from nodeagent.features.windows.decide.local_time import readings
from nodeagent.features.windows.decide.schedule import LONGEST, Schedule
from nodeagent.features.windows.decide.window import LAST, WEEK, WEEKDAY, Window, every, named_windows, parse_windows
from tests.features.windows.decide.zones import moments, utc, zones

pytestmark = pytest.mark.cluster_failure("the window closes during the drain")

MINUTE = timedelta(minutes=1)
PRAGUE = ZoneInfo("Europe/Prague")  # 2026: forward on 29 March at 02:00, back on 25 October at 03:00

windows = st.builds(
    Window, st.integers(0, 6), st.integers(0, 24 * 60 - 1), st.one_of(st.integers(1, 300), st.integers(1, WEEK))
)
schedules = st.builds(Schedule, st.lists(windows, max_size=3), zones)


@given(schedules, moments)
def test_local_time_decides(schedule: Schedule, at: datetime) -> None:
    local = at.astimezone(schedule.zone)
    monday = local.replace(tzinfo=None, hour=0, minute=0) - timedelta(days=local.weekday())
    wall = local.replace(tzinfo=None)
    starts = [
        (monday + timedelta(days=each.day + 7 * week, minutes=each.start), each.length)
        for each in schedule.windows
        for week in (-2, -1, 0)
    ]
    assert schedule.is_open(at) == any(begin <= wall < begin + timedelta(minutes=length) for begin, length in starts)


@given(schedules, moments)
@example(Schedule([Window(6, 150, 20)], PRAGUE), utc("2026-03-29T00:00"))  # the whole window is skipped
@example(Schedule([Window(6, 90, 60)], PRAGUE), utc("2026-03-29T00:00"))  # its end is
@example(Schedule([Window(6, 60, 90)], PRAGUE), utc("2026-10-25T00:20"))  # open, closed, open again
def test_the_next_change_is_the_first(schedule: Schedule, at: datetime) -> None:
    state, found = schedule.is_open(at), schedule.next_change(at)
    if found is not None:
        assert found > at
        assert schedule.is_open(found) != state
        assert schedule.is_open(found - timedelta(seconds=1)) == state
    until = min(found, at + timedelta(days=2)) if found is not None else at + timedelta(days=2)
    moment = at
    while moment < until:
        assert schedule.is_open(moment) == state
        moment += 7 * MINUTE


@pytest.mark.parametrize(
    ("window", "at", "changes"),
    [
        # Forward: 02:00 becomes 03:00 at 01:00 UTC.
        (Window(6, 120, 120), "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-29T02:00", "2026-04-05T00:00"]),
        (Window(6, 150, 20), "2026-03-28T12:00", ["2026-04-05T00:30", "2026-04-05T00:50"]),
        (Window(6, 90, 60), "2026-03-28T12:00", ["2026-03-29T00:30", "2026-03-29T01:00", "2026-04-04T23:30"]),
        # Back: 03:00 becomes 02:00 at 01:00 UTC.
        (Window(6, 120, 30), "2026-10-24T12:00",
         ["2026-10-25T00:00", "2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30", "2026-11-01T01:00"]),
        (Window(6, 60, 180), "2026-10-24T12:00", ["2026-10-24T23:00", "2026-10-25T03:00"]),
    ],
)  # fmt: skip
def test_daylight_saving(window: Window, at: str, changes: list[str]) -> None:
    schedule, moment, found = Schedule([window], PRAGUE), utc(at), []
    for _ in changes:
        change = schedule.next_change(moment)
        assert change is not None
        found.append(change)
        moment = change
    assert found == [utc(change) for change in changes]


def test_always_and_never() -> None:
    at = utc("2026-11-21T12:00")
    always, never = Schedule([Window(3, 600, WEEK)], PRAGUE), Schedule([], PRAGUE)
    assert (always.is_open(at), always.next_change(at), always.opens(at)) == (True, None, at)
    assert (never.is_open(at), never.next_change(at), never.opens(at)) == (False, None, None)


def test_windows_that_touch_are_one() -> None:
    every_day = Schedule(every([], "00:00", 24 * 60), PRAGUE)
    assert every_day.next_change(utc("2026-03-27T12:00")) is None


def test_a_name_is_for_operators() -> None:
    texts = ["22:30 60", "nights = sat,sun 02:00 120"]
    assert parse_windows(texts) == (*every([], "22:30", 60), *every(["sat", "sun"], "02:00", 120))
    assert named_windows(texts) == {"nights": "sat,sun 02:00 120"}
    with pytest.raises(ValueError, match="two windows have the name nights"):
        named_windows([*texts, "nights = 03:00 60"])


def test_as_people_write_them() -> None:
    assert every(["Sat", "sunday", "sat"], "22:30", 90) == (Window(5, 1350, 90), Window(6, 1350, 90))
    assert [window.day for window in every([], "0:05", 1)] == list(range(7))


@pytest.mark.parametrize(
    ("days", "start", "length"),
    [(["Sax"], "22:30", 1), (["Satur"], "22:30", 1), ([], "24:00", 1), ([], "22:60", 1), ([], "22", 1), ([], "22:5", 1),
     ([], "-1:00", 1), ([], "22:30", 0), ([], "22:30", WEEK + 1)],
)  # fmt: skip
def test_what_is_no_window(days: list[str], start: str, length: int) -> None:
    with pytest.raises(ValueError, match=r"is no|lasts"):
        every(days, start, length)


def test_a_time_needs_an_offset() -> None:
    with pytest.raises(ValueError, match="offset"):
        Schedule([], PRAGUE).is_open(datetime(2026, 11, 21))  # noqa: DTZ001


monthly = st.builds(
    Window,
    st.one_of(st.integers(0, 6), st.just(WEEKDAY)),
    st.integers(0, 24 * 60 - 1),
    st.one_of(st.integers(1, 300), st.integers(1, WEEK)),
    st.one_of(st.integers(1, 5), st.just(LAST)),
)


@given(st.builds(Schedule, st.lists(st.one_of(windows, monthly), min_size=1, max_size=4), zones), moments)
def test_no_change_of_a_month_is_passed_over(schedule: Schedule, at: datetime) -> None:
    """The times of all days in their order, as against those of the days that are needed."""
    later = list(schedule._later(at, 70))
    assert later == sorted(later)
    days = schedule._days(at, -LONGEST, 70)
    assert set(later) == {moment for day in days for moment in schedule._moments(day) if moment > at}


def test_the_next_change_reads_the_days_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[datetime] = []

    def counted(wall: datetime, zone: tzinfo) -> Iterator[datetime]:
        read.append(wall)
        return readings(wall, zone)

    monkeypatch.setattr(module, "readings", counted)
    schedule = Schedule(parse_windows(["02:00 60", "1st sun 03:30 70"]), PRAGUE)
    assert schedule.next_change(utc("2026-01-05T00:00")) == utc("2026-01-05T01:00")
    # Two times for each day that a window may last, and for those that may be in disorder.
    assert len(read) <= 4 * (LONGEST + 4)
