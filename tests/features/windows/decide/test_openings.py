# SPDX-License-Identifier: Apache-2.0
"""Freezes, and what they leave of the windows, against a clock that is read minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeagent.features.windows.decide.freeze import Freeze, Frozen, parse_freezes
from nodeagent.features.windows.decide.openings import Openings
from nodeagent.features.windows.decide.schedule import Opening, Schedule
from nodeagent.features.windows.decide.window import Window, parse_windows
from tests.features.windows.decide.zones import JUMPS, moments, utc, zones

MINUTE = timedelta(minutes=1)
PRAGUE = ZoneInfo("Europe/Prague")  # 2026: forward on 29 March at 02:00, back on 25 October at 03:00
windows = st.builds(Window, st.integers(0, 6), st.integers(0, 24 * 60 - 1), st.integers(1, 3000))


@given(st.sampled_from(JUMPS), st.integers(-2000, 2000), st.integers(1, 2000), zones)
@example(JUMPS[3], 90, 30, PRAGUE)  # its begin, 02:30, is skipped
@example(JUMPS[6], 90, 30, PRAGUE)  # its begin occurs twice
@example(JUMPS[0], 500, 30, ZoneInfo("Pacific/Apia"))  # the whole day is skipped
def test_a_freeze_against_a_clock(jump: datetime, start: int, length: int, zone: ZoneInfo) -> None:
    begins = (jump + start * MINUTE).astimezone(zone).replace(tzinfo=None, fold=0)
    ends = begins + length * MINUTE
    freeze = Freeze(begins, ends).span(zone)
    # From the first reading of the begin, or of a later time, to the last reading of an earlier time than the end.
    clock = [jump + minute * MINUTE for minute in range(-4500, 6500)]
    walls = [moment.astimezone(zone).replace(tzinfo=None, fold=0) for moment in clock]
    first = next((at for at, wall in zip(clock, walls, strict=True) if wall == begins), None)
    last = next((at for at, wall in zip(reversed(clock), reversed(walls), strict=True) if wall == ends), None)
    if first is not None:
        assert freeze.begins == first
    else:
        assert freeze.begins == next(at for at, wall in zip(clock, walls, strict=True) if wall > begins)
    if last is not None:
        assert freeze.ends == last
    else:
        assert freeze.ends == next(at for at, wall in zip(clock, walls, strict=True) if wall > ends)


@given(
    st.lists(windows, max_size=2),
    st.lists(st.tuples(st.integers(-3000, 3000), st.integers(1, 4000)), max_size=3),
    zones,
    moments,
)
def test_openings_against_a_clock(
    given_windows: list[Window], spans: list[tuple[int, int]], zone: ZoneInfo, at: datetime
) -> None:
    freezes = [Frozen(at + begin * MINUTE, at + (begin + length) * MINUTE) for begin, length in spans]
    schedule = Schedule(given_windows, zone) if given_windows else None
    openings = Openings(schedule, tuple(sorted(freezes)))
    found = list(islice(openings.after(at), 20))
    moment = at
    for _ in range(600):
        expected = (schedule is None or schedule.is_open(moment)) and not any(
            freeze.begins <= moment < freeze.ends for freeze in freezes
        )
        covering = [
            each
            for each in found
            if (each.begins is None or each.begins <= moment) and (each.ends is None or moment < each.ends)
        ]
        if len(found) < 20:
            assert bool(covering) == expected
        assert not covering or expected
        moment += 11 * MINUTE


def test_a_freeze_takes_its_part_of_a_window() -> None:
    schedule = Schedule(parse_windows(["02:00 240"]), UTC)
    openings = Openings(schedule, (Frozen(utc("2026-01-02T05:00"), utc("2026-01-05T03:00")),))
    assert list(islice(openings.after(utc("2026-01-01T12:00")), 3)) == [
        Opening(utc("2026-01-02T02:00"), utc("2026-01-02T05:00")),
        Opening(utc("2026-01-05T03:00"), utc("2026-01-05T06:00")),
        Opening(utc("2026-01-06T02:00"), utc("2026-01-06T06:00")),
    ]


def test_without_windows_only_freezes_are_closed() -> None:
    freezes = tuple(
        Frozen(utc(f"2026-01-{begin:02}T00:00"), utc(f"2026-01-{end:02}T00:00"), name)
        for begin, end, name in ((2, 4, "audit"), (4, 6, "fair"), (3, 5, ""))
    )
    openings = Openings(None, tuple(sorted(freezes)))
    assert list(openings.after(utc("2026-01-01T00:00"))) == [
        Opening(None, utc("2026-01-02T00:00")),
        Opening(utc("2026-01-06T00:00"), None),
    ]
    frozen = openings.frozen(utc("2026-01-03T12:00"))
    assert frozen is not None
    assert (frozen.ends, openings.thaws(utc("2026-01-03T12:00"))) == (utc("2026-01-05T00:00"), utc("2026-01-06T00:00"))
    assert list(Openings(None).after(utc("2026-01-01T00:00"))) == [Opening()]
    assert list(Openings(Schedule((), UTC)).after(utc("2026-01-01T00:00"))) == []


@pytest.mark.parametrize(
    ("text", "begins", "ends", "name"),
    [
        ("2026-12-20..2027-01-03", "2026-12-20T00:00", "2027-01-04T00:00", ""),
        ("holidays = 2026-12-20..2027-01-03", "2026-12-20T00:00", "2027-01-04T00:00", "holidays"),
        ("2026-12-20T18:30..2027-01-04T06:00", "2026-12-20T18:30", "2027-01-04T06:00", ""),
        ("2026-12-20T18:30..2026-12-20", "2026-12-20T18:30", "2026-12-21T00:00", ""),
        ("2028-02-29", "2028-02-29T00:00", "2028-03-01T00:00", ""),
    ],
)
def test_as_people_write_them(text: str, begins: str, ends: str, name: str) -> None:
    expected = Freeze(datetime.fromisoformat(begins), datetime.fromisoformat(ends), name)
    assert parse_freezes([text]) == (expected,)


@pytest.mark.parametrize(
    "text",
    [
        *("2026-02-29", "2026-12-20T18:00", "2026-12-20..2026-12-19", "2026-12-20T06:00..2026-12-20T06:00", "soon"),
        *("2026-01-01..2027-01-03", "2026-W01", "20261220", "2026-12-20..", "1999-12-31", "2026-12-20T25:00"),
    ],
)
def test_what_is_no_freeze(text: str) -> None:
    with pytest.raises(ValueError):
        parse_freezes([text])


def test_more_freezes_than_an_admin_writes() -> None:
    with pytest.raises(ValueError, match="more than 100"):
        parse_freezes(["2026-12-24"] * 101)
