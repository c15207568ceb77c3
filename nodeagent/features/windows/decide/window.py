# SPDX-License-Identifier: Apache-2.0
"""Windows in which a disruption may begin, as an admin writes them: on days of the week, or on days of each month."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
FULL: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAY: Final = 24 * 60
WEEK: Final = 7 * DAY
SUNDAY: Final = 6
# In place of a day of the week: Monday to Friday, and every day. They are counted in a month only.
WEEKDAY: Final = 7
ANY: Final = 8
LAST: Final = -1


@dataclass(frozen=True, slots=True)
class Window:
    """``day`` 0 is Monday, ``start`` is in minutes from midnight, ``length`` in minutes, at most a week.

    ``place`` counts these days in each month from 1, ``LAST`` is the last one; 0: each week.
    """

    day: int
    start: int
    length: int
    place: int = 0

    def __post_init__(self) -> None:
        days = ANY if self.place else SUNDAY
        places = 31 if self.day == ANY else 5
        if not (0 <= self.day <= days and LAST <= self.place <= places):
            raise ValueError(f"invalid day of a window: {self.day}, {self.place}")
        if not (0 <= self.start < DAY and 0 < self.length <= WEEK):
            raise ValueError(f"invalid window: {self.start}, {self.length}")

    def begins_on(self, day: date) -> bool:
        if not self.place:
            return day.weekday() == self.day
        return day.day == _in_month(day.year, day.month, self.day, self.place)


@lru_cache(maxsize=1024)
def _in_month(year: int, month: int, day: int, place: int) -> int:
    """Return the day of the month, 0 for a month without one."""
    first, length = monthrange(year, month)
    numbers = [number for number in range(1, length + 1) if _counts((first + number - 1) % 7, day)]
    if place == LAST:
        return numbers[-1]
    return numbers[place - 1] if place <= len(numbers) else 0


def _counts(weekday: int, day: int) -> bool:
    return day == ANY or (weekday < 5 if day == WEEKDAY else weekday == day)


def every(days: Iterable[str], start: str, length: int, places: Iterable[str] = ()) -> Sequence[Window]:
    """Return one window per day, or per place and day. ``start`` is HH:MM, ``length`` in minutes.

    ``days`` are English names or their first three letters, none for every day. ``places`` are 1st, 2nd, ... and last;
    with them, ``weekday`` is a day as well, and no day means the days of the month.

    Raises ``ValueError`` for the admin.
    """
    numbers = [_place(text) for text in places]
    everyday = [ANY] if numbers else list(range(7))
    named = [WEEKDAY if numbers and name.strip().lower() == "weekday" else _day(name) for name in days] or everyday
    time = re.fullmatch(r"(\d+):(\d\d)", start, re.ASCII)
    if time is None or int(time[1]) > 23 or int(time[2]) > 59:
        raise ValueError(f"{start!r} is not a time of day, as in 22:30")
    if not 0 < length <= WEEK:
        raise ValueError(f"a window lasts from 1 to {WEEK} minutes, not {length}")
    if max(numbers, default=0) > 5 and named != [ANY]:
        raise ValueError("a month has at most five of each day of the week, so a window names the 1st to the 5th")
    minutes = int(time[1]) * 60 + int(time[2])
    return tuple(
        Window(day, minutes, length, place) for place in sorted(set(numbers)) or [0] for day in sorted(set(named))
    )


def parse_windows(texts: Iterable[str]) -> Sequence[Window]:
    """Parse windows of the form "DAYS HH:MM MINUTES", with comma-separated days or none. Raises as ``every``.

    Places in a month may precede the days, as in "2nd,last tue 02:00 60". A name in front, as in "nights = 02:00 60",
    is for operators: see ``named_windows``.
    """
    windows: list[Window] = []
    for text in texts:
        *days, start, minutes = text.rpartition("=")[2].split()
        # No day of the week begins with a digit.
        words = ",".join(days).split(",") if days else []
        places = [word for word in words if word[:1].isdigit() or word == "last"]
        if words[: len(places)] != places:
            raise ValueError(f"{' '.join(days)!r} has a place in the month behind a day, as in 2nd tue")
        windows += every(words[len(places) :], start, int(minutes), places)
    return tuple(windows)


def named_windows(texts: Iterable[str]) -> Mapping[str, str]:
    """Return the windows that have a name, by their names. Raises ``ValueError`` for a name that two windows have."""
    windows: dict[str, str] = {}
    for text in texts:
        name, equals, window = (part.strip() for part in text.partition("="))
        if name in windows:
            raise ValueError(f"two windows have the name {name}")
        if equals:
            windows[name] = window
    return windows


def _day(name: str) -> int:
    short = name.strip().lower()[:3]
    # The whole word is compared, or three letters would make any word a day.
    if short not in DAYS or name.strip().lower() not in (short, FULL[DAYS.index(short)]):
        raise ValueError(f"{name!r} is not a day of the week")
    return DAYS.index(short)


def _place(text: str) -> int:
    if text == "last":
        return LAST
    number = re.fullmatch(r"([1-9]|[12]\d|3[01])(st|nd|rd|th)", text, re.ASCII)
    if number is None:
        raise ValueError(f"{text!r} is not a place in a month, as in 1st, 2nd or last")
    return int(number[1])
