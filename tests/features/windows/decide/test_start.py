# SPDX-License-Identifier: Apache-2.0
"""The delay of an update that an operator requested."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from nodeagent.features.windows.decide.start import RequestedStart, Waits, parse_start, waits

BERLIN = ZoneInfo("Europe/Berlin")
# A Friday, 20:00 in Berlin.
NOW = datetime(2026, 11, 20, 19, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("02:00", "2026-11-21T01:00:00Z"),
        ("22:30", "2026-11-20T21:30:00Z"),
        ("2:05", "2026-11-21T01:05:00Z"),
        ("today 23:00", "2026-11-20T22:00:00Z"),
        ("tomorrow 02:00", "2026-11-21T01:00:00Z"),
        ("Tomorrow 23:59", "2026-11-21T22:59:00Z"),
        ("sat 02:00", "2026-11-21T01:00:00Z"),
        ("friday 21:00", "2026-11-20T20:00:00Z"),
        ("friday 19:00", "2026-11-27T18:00:00Z"),
        ("2026-11-24T02:00", "2026-11-24T01:00:00Z"),
        ("2026-11-24 02:00:30", "2026-11-24T01:00:30Z"),
        ("2026-11-24T02:00+00:00", "2026-11-24T02:00:00Z"),
        ("2026-11-24T02:00Z", "2026-11-24T02:00:00Z"),
        # Summer time: the offset of that day counts.
        ("2027-07-01T02:00", "2027-07-01T00:00:00Z"),
    ],
)
def test_times(text: str, start: str) -> None:
    assert parse_start(text, NOW, BERLIN) == (start, "")


@pytest.mark.parametrize(
    "text", ["sat 02:00 60", "sat,sun 02:00 60", "22:00 120", "last sun 02:00 60", "15th 02:00 60"]
)
def test_windows(text: str) -> None:
    assert parse_start(text, NOW, BERLIN) == ("", text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "   ", "noon", "25:00", "02:60", "2:5", "tomorrow", "yesterday 02:00", "today 19:00", "sat 02:00 0"),
        *("2026-11-20T19:59", "2028-01-01T00:00", "sat 02:00 99999", "6th sat 02:00 60", "xyz 02:00 60"),
        *("02:00 02:00", "x" * 200),
        *("today 2:00 pm", "٠٢:٠٠", "-1:00", "1e9", "2026-11-24T02:00[Europe/Berlin]"),
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        parse_start(text, NOW, BERLIN)


def test_what_an_update_waits_for() -> None:
    at, start = "2026-11-21T01:00:00Z", datetime(2026, 11, 21, 1, tzinfo=UTC)
    assert waits(RequestedStart(), NOW, BERLIN) is None
    assert waits(RequestedStart(at), NOW, BERLIN) == Waits(start)
    assert waits(RequestedStart(at), start, BERLIN) is None
    assert waits(RequestedStart(window="sat 02:00 60"), NOW, BERLIN) == Waits(start)
    assert waits(RequestedStart(window="sat 02:00 60"), start, BERLIN) is None
