"""Weekly windows in which a disruption may begin, by the clock on the wall of a time zone.

A window is open exactly while that clock reads a time in it. So an hour that daylight saving skips is skipped, with a
window that lies in it, and an hour that comes twice is open twice: nothing is ever begun at a time of day that nobody
allowed. (Zincati reads its periodic windows the same way.) Overlapping and adjoining windows are one. The end belongs
to no window.

Closing only keeps things from beginning; ``may_begin`` is not asked again for what is past its point of no return.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

__all__ = ["Schedule", "Window", "parse_windows", "weekly"]

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY = 24 * 60
WEEK = 7 * DAY
AHEAD = 16
"""Days to look ahead for the next change: two weeks, since the only window of a week may lie in a gap."""
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Window:
    """``day`` 0 is Monday, ``start`` is in minutes from midnight, ``length`` in minutes, at most a week."""

    day: int
    start: int
    length: int

    def __post_init__(self) -> None:
        if not (0 <= self.day < 7 and 0 <= self.start < DAY and 0 < self.length <= WEEK):
            raise ValueError(f"no window: {self.day}, {self.start}, {self.length}")


def weekly(days: Iterable[str], start: str, length: int) -> Sequence[Window]:
    """``days`` are English names or their first three letters, none for every day; ``start`` is HH:MM, ``length`` in
    minutes. Raises ``ValueError`` with words for the person who wrote them."""
    named = [_day(name) for name in days] or list(range(7))
    hour, colon, minute = start.partition(":")
    if not (colon and hour.isascii() and hour.isdigit() and len(minute) == 2 and minute.isascii() and minute.isdigit()):
        raise ValueError(f"{start!r} is no time of day as in 22:30")
    if int(hour) > 23 or int(minute) > 59:
        raise ValueError(f"{start!r} is no time of day as in 22:30")
    if not 0 < length <= WEEK:
        raise ValueError(f"a window lasts from 1 to {WEEK} minutes, not {length}")
    return tuple(Window(day, int(hour) * 60 + int(minute), length) for day in sorted(set(named)))


def parse_windows(texts: Iterable[str]) -> Sequence[Window]:
    """Each as "DAYS HH:MM MINUTES", days with commas between them, or none. Raises ``ValueError`` as ``weekly``."""
    found: list[Window] = []
    for text in texts:
        *days, start, minutes = text.split()
        found += weekly(",".join(days).split(",") if days else (), start, int(minutes))
    return tuple(found)


def _day(name: str) -> int:
    short = name.strip().lower()[:3]
    full = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    if short not in DAYS or name.strip().lower() not in (short, full[DAYS.index(short)]):
        raise ValueError(f"{name!r} is no day of the week")
    return DAYS.index(short)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Without windows it is never open. Every time that comes in has an offset (``ValueError`` without), every time
    that goes out is in UTC."""

    windows: Sequence[Window]
    zone: tzinfo

    def is_open(self, at: datetime) -> bool:
        local = self._local(at)
        now = local.weekday() * DAY + local.hour * 60 + local.minute
        return any((now - (each.day * DAY + each.start)) % WEEK < each.length for each in self.windows)

    def next_change(self, at: datetime) -> datetime | None:
        """When it closes, if it is open, else when it opens: the first moment after ``at``. None for one that is always
        the same."""
        at = at.astimezone(UTC)  # times that a clock reads twice do not compare well (PEP 495)
        state = self.is_open(at)
        later = sorted({moment for moment in self._moments(at) if moment > at})
        return next((moment for moment in later if self.is_open(moment) != state), None)

    def opens(self, at: datetime) -> datetime | None:
        """When something may begin: ``at``, if that is now; None for never."""
        return at.astimezone(UTC) if self.is_open(at) else self.next_change(at)

    def may_begin(self, at: datetime, need: timedelta = timedelta(0)) -> bool:
        """``need`` is how long it takes to the point of no return: what would not get there in time is not begun."""
        if not self.is_open(at):
            return False
        closes = self.next_change(at)
        return closes is None or closes - at >= need

    def _local(self, at: datetime) -> datetime:
        if at.tzinfo is None:
            raise ValueError("a time without an offset")
        return at.astimezone(self.zone)

    def _moments(self, at: datetime) -> Iterator[datetime]:
        """In UTC, all at which something can change: where the clock reads a start or an end, and where it jumps over
        one."""
        today = self._local(at).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        for day in range(-8, AHEAD):  # a window of a whole week began as long ago
            date = today + timedelta(days=day)
            for window in self.windows:
                if date.weekday() == window.day:
                    start = date + timedelta(minutes=window.start)
                    yield from self._readings(start)
                    yield from self._readings(start + timedelta(minutes=window.length))

    def _readings(self, wall: datetime) -> Iterator[datetime]:
        """A clock that jumps reads ``wall`` twice, or never: then both are as if the one or the other offset went on
        (PEP 495), and the jump is between them."""
        one, other = (wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        yield one
        if one == other:
            return
        yield other
        low, high = min(one, other), max(one, other)
        before = low.astimezone(self.zone).utcoffset()
        while high - low > SECOND:
            middle = low + (high - low) // 2
            if middle.astimezone(self.zone).utcoffset() == before:
                low = middle
            else:
                high = middle
        yield high.replace(microsecond=0)
