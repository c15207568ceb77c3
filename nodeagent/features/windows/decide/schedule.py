# SPDX-License-Identifier: Apache-2.0
"""Windows in the local time of a time zone.

A window is open while the local time is in it. So a time that daylight saving skips has no window, and a time that
occurs twice has its window twice: no operation begins at a time of day that was not configured. Zincati reads its
periodic windows the same way. Overlapping and adjacent windows are one. The end belongs to no window.

A window that closes interrupts nothing: an update checks it before its point of no return, and not afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from heapq import heappop, heappush
from typing import Final

from nodeagent.features.windows.decide.local_time import local, readings
from nodeagent.features.windows.decide.window import DAY, Window

# Days to search for the next change: two weeks, since the only window of a week may be skipped. A month need not have
# a 31st or a fifth Tuesday either.
AHEAD: Final = 16
AHEAD_MONTHS: Final = 400
# Days of the longest window, which may begin at the end of a day.
LONGEST: Final = 8
# Days before a moment in which the begin of its opening is searched.
BACK: Final = 24
SECOND: Final = timedelta(seconds=1)
# A local time and UTC differ by less, also at a jump of a whole day.
OFFSET: Final = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Opening:
    """A time in which an update may begin, in UTC; ``ends`` does not belong to it.

    ``begins`` None: for weeks already. ``ends`` None: never.
    """

    begins: datetime | None = None
    ends: datetime | None = None

    @property
    def length(self) -> timedelta | None:
        """None: without a bound."""
        return self.ends - self.begins if self.begins is not None and self.ends is not None else None


@dataclass(frozen=True, slots=True)
class Schedule:
    """Windows in a time zone. Arguments must have an offset (``ValueError``); results are in UTC."""

    windows: Sequence[Window]
    zone: tzinfo

    def is_open(self, at: datetime) -> bool:
        now = local(at, self.zone)
        today, minute = now.date(), now.hour * 60 + now.minute
        return any(
            0 <= back * DAY + minute - window.start < window.length and window.begins_on(today - timedelta(back))
            for window in self.windows
            for back in range((window.start + window.length - 1) // DAY + 1)
        )

    def next_change(self, at: datetime) -> datetime | None:
        """Return when the schedule closes or opens next, after ``at``; None if it never changes."""
        # Times that occur twice do not compare well (PEP 495).
        at = at.astimezone(UTC)
        state = self.is_open(at)
        ahead = AHEAD_MONTHS if any(window.place for window in self.windows) else AHEAD
        # Moments at which nothing changes are skipped: adjoining windows are one.
        return next((moment for moment in self._later(at, ahead) if self.is_open(moment) != state), None)

    def opens(self, at: datetime) -> datetime | None:
        """Return when an operation may begin: ``at`` if it is open then, None for never."""
        return at.astimezone(UTC) if self.is_open(at) else self.next_change(at)

    def opening(self, at: datetime) -> Opening | None:
        """Return the first opening that ends after ``at``; None if there is none."""
        at = at.astimezone(UTC)
        if self.is_open(at):
            return Opening(self._last_change(at), self.next_change(at))
        begins = self.next_change(at)
        return Opening(begins, self.next_change(begins)) if begins is not None else None

    def _last_change(self, at: datetime) -> datetime | None:
        """Return when it opened, before the open moment ``at`` or at it; None for weeks ago."""
        moments = {moment for day in self._days(at, -BACK, 1) for moment in self._moments(day)}
        earlier = sorted((moment for moment in moments if moment <= at), reverse=True)
        return next((moment for moment in earlier if not self.is_open(moment - SECOND)), None)

    def _later(self, at: datetime, ahead: int) -> Iterator[datetime]:
        """Yield the times after ``at`` at which the schedule may change, in their order, each maybe more than once.

        Days are read as far as their times are needed: mostly, the next one is near.
        """
        waiting: list[datetime] = []
        for day in self._days(at, -LONGEST, ahead):
            for moment in self._moments(day):
                if moment > at:
                    heappush(waiting, moment)
            # No window that begins later has an earlier time.
            before = day.replace(tzinfo=UTC) - OFFSET
            while waiting and waiting[0] < before:
                yield heappop(waiting)
        yield from sorted(waiting)

    def _days(self, at: datetime, first: int, last: int) -> Iterator[datetime]:
        """Yield the local days from ``first`` to ``last``, exclusive, counted from that of ``at``."""
        today = local(at, self.zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        return (today + timedelta(days=day) for day in range(first, last))

    def _moments(self, day: datetime) -> Iterator[datetime]:
        """Yield the times in UTC at which windows that begin on a local day may change the schedule: starts, ends, and
        jumps of the clock over one."""
        for window in self.windows:
            if window.begins_on(day.date()):
                start = day + timedelta(minutes=window.start)
                yield from readings(start, self.zone)
                yield from readings(start + timedelta(minutes=window.length), self.zone)
