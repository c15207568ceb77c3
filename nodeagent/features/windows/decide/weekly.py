# SPDX-License-Identifier: Apache-2.0
"""Weekly windows in which a disruption may begin, in the local time of a time zone.

A window is open while the local time is in it. So a time that daylight saving skips has no window, and a time that
occurs twice has its window twice: no operation begins at a time of day that was not configured. Zincati reads its
periodic windows the same way. Overlapping and adjacent windows are one. The end belongs to no window.

A window that closes interrupts nothing: an update checks it before its point of no return, and not afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY = 24 * 60
WEEK = 7 * DAY

# Days to search for the next change: two weeks, since the only window of a week may be skipped.
AHEAD = 16
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Window:
    """``day`` 0 is Monday, ``start`` is in minutes from midnight, ``length`` in minutes, at most a week."""

    day: int
    start: int
    length: int

    def __post_init__(self) -> None:
        if not (0 <= self.day < 7 and 0 <= self.start < DAY and 0 < self.length <= WEEK):
            raise ValueError(f"invalid window: {self.day}, {self.start}, {self.length}")


def weekly(days: Iterable[str], start: str, length: int) -> Sequence[Window]:
    """Return one window per day. ``start`` is HH:MM, ``length`` in minutes.

    ``days`` are English names or their first three letters, none for every day. Raises ``ValueError`` for the admin.
    """
    named = [_day(name) for name in days] or list(range(7))
    time = re.fullmatch(r"(\d+):(\d\d)", start, re.ASCII)
    if time is None or int(time[1]) > 23 or int(time[2]) > 59:
        raise ValueError(f"{start!r} is not a time of day, as in 22:30")
    if not 0 < length <= WEEK:
        raise ValueError(f"a window lasts from 1 to {WEEK} minutes, not {length}")
    return tuple(Window(day, int(time[1]) * 60 + int(time[2]), length) for day in sorted(set(named)))


def parse_windows(texts: Iterable[str]) -> Sequence[Window]:
    """Parse windows of the form "DAYS HH:MM MINUTES", with comma-separated days or none. Raises as ``weekly``.

    A name in front, as in "nights = 02:00 60", is for operators: see ``named_windows``.
    """
    windows: list[Window] = []
    for text in texts:
        *days, start, minutes = text.rpartition("=")[2].split()
        windows += weekly(",".join(days).split(",") if days else (), start, int(minutes))
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
    full = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    # The whole word is compared, or three letters would make any word a day.
    if short not in DAYS or name.strip().lower() not in (short, full[DAYS.index(short)]):
        raise ValueError(f"{name!r} is not a day of the week")
    return DAYS.index(short)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Windows in a time zone. Arguments must have an offset (``ValueError``); results are in UTC."""

    windows: Sequence[Window]
    zone: tzinfo

    def is_open(self, at: datetime) -> bool:
        local = self._local(at)
        # The difference is taken modulo a week, so that a window over the end of Sunday needs no second case.
        now = local.weekday() * DAY + local.hour * 60 + local.minute
        return any((now - (window.day * DAY + window.start)) % WEEK < window.length for window in self.windows)

    def next_change(self, at: datetime) -> datetime | None:
        """Return when the schedule closes or opens next, after ``at``; None if it never changes."""
        # Times that occur twice do not compare well (PEP 495).
        at = at.astimezone(UTC)
        # Moments at which nothing changes are skipped: adjoining windows are one.
        state = self.is_open(at)
        later = sorted({moment for moment in self._moments(at) if moment > at})
        return next((moment for moment in later if self.is_open(moment) != state), None)

    def opens(self, at: datetime) -> datetime | None:
        """Return when an operation may begin: ``at`` if it is open then, None for never."""
        return at.astimezone(UTC) if self.is_open(at) else self.next_change(at)

    def _local(self, at: datetime) -> datetime:
        if at.tzinfo is None:
            raise ValueError("a time without an offset")
        return at.astimezone(self.zone)

    def _moments(self, at: datetime) -> Iterator[datetime]:
        """Yield the times in UTC at which the schedule may change: starts, ends, and jumps of the clock over one."""
        today = self._local(at).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        # A window may last a whole week.
        for day in range(-8, AHEAD):
            date = today + timedelta(days=day)
            for window in self.windows:
                if date.weekday() == window.day:
                    start = date + timedelta(minutes=window.start)
                    yield from self._readings(start)
                    yield from self._readings(start + timedelta(minutes=window.length))

    def _readings(self, wall: datetime) -> Iterator[datetime]:
        """Yield the times in UTC of a local time. If that occurs twice or never, the jump is between both (PEP 495)."""
        first, second = (wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        yield first
        if first == second:
            return
        yield second
        low, high = min(first, second), max(first, second)
        before = low.astimezone(self.zone).utcoffset()
        # There is no interface for the moment at which a zone changes its offset, so it is found by bisection.
        while high - low > SECOND:
            middle = low + (high - low) // 2
            if middle.astimezone(self.zone).utcoffset() == before:
                low = middle
            else:
                high = middle
        yield high.replace(microsecond=0)
