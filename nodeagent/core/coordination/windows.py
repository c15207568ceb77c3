# SPDX-License-Identifier: Apache-2.0
"""Weekly windows in which a disruption may begin, in the local time of a time zone.

A window is open while the local time is in it. So a time that daylight saving skips has no window, and a time that
occurs twice has its window twice: no operation begins at a time of day that was not configured. Zincati reads its
periodic windows the same way. Overlapping and adjacent windows are one. The end belongs to no window.

A window that closes interrupts nothing: an operation checks it before its point of no return, and not afterwards.

A hold is a delay of one update that an operator requested: a start time, such a window, or no reboot until it is
requested. Its time is compared with the wall clock at each attempt, so a clock that is set, and a restart, do not
matter.
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


# Days from a request to the start of its update, at most: a later one is a typing error.
MAX_DAYS = 366
ONE_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Hold:
    """``digest`` is that of the config. ``not_before`` is RFC 3339, ``window`` has the form of ``windows.open``; "" for
    none. With ``no_reboot``, an update that reboots waits before its first write, and no other one falls back to a
    reboot. With ``boot_staged``, its reboot may boot what another program has staged. ``requester`` is the operator."""

    digest: str
    not_before: str = ""
    window: str = ""
    no_reboot: bool = False
    requester: str = ""
    boot_staged: bool = False


@dataclass(frozen=True, slots=True)
class Waits:
    """``until`` None: until an operator requests the reboot, or without end."""

    until: datetime | None
    reboot: bool = False


def start_of(text: str) -> datetime:
    """Return the time of RFC 3339. Raise ``ValueError``."""
    start = datetime.fromisoformat(text)
    if start.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    return start


def waits(hold: Hold | None, digest: str, now: datetime, zone: tzinfo, *, reboots: bool) -> Waits | None:
    """Return what the update to the config ``digest`` waits for at ``now``; None if it may begin."""
    if hold is None or hold.digest != digest:
        return None
    if hold.not_before and now < (start := start_of(hold.not_before)):
        return Waits(start)
    if hold.window and not (schedule := Schedule(parse_windows([hold.window]), zone)).is_open(now):
        return Waits(schedule.opens(now))
    return Waits(None, reboot=True) if hold.no_reboot and reboots else None


def parse_start(text: str, now: datetime, zone: tzinfo) -> tuple[str, str]:
    """Return start time and window, one of them "", of a text that an operator writes.

    A time is ISO 8601 (``2026-11-24T02:00``, local without an offset), ``02:00`` (the next one), or ``02:00`` after
    ``today``, ``tomorrow`` or a day of the week. A window has the form of the setting: ``sat,sun 02:00 60``. Raises
    ``ValueError`` for the operator.
    """
    words = text.split()
    if not words or len(text) > 100:
        raise ValueError("the time is empty" if not words else "the time is too long")
    # A window ends in its minutes, behind a time of day. No point in time ends like that.
    if words[-1].isascii() and words[-1].isdigit() and len(words) > 1 and ":" in words[-2]:
        parse_windows([text])
        return "", " ".join(words)
    start = _moment(words, now.astimezone(zone))
    if start <= now:
        raise ValueError(f"{text!r} is in the past")
    if start > now + MAX_DAYS * ONE_DAY:
        raise ValueError(f"{text!r} is more than {MAX_DAYS} days ahead")
    return start.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"), ""


def _moment(words: list[str], now: datetime) -> datetime:
    """Return the time that ``words`` name, in the zone of ``now``."""
    match [word.lower() for word in words]:
        # Anything longer has a date.
        case [time] if len(time) <= 5:
            at = _at(now, time, 0)
            return at if at > now else _at(now, time, 1)
        case ["today", time]:
            return _at(now, time, 0)
        case ["tomorrow", time]:
            return _at(now, time, 1)
        case [day, time] if day[:1].isalpha():
            # The parser of the windows reads days and times, so that both accept the same ones.
            ahead = (weekly([day], time, 1)[0].day - now.weekday()) % 7
            at = _at(now, time, ahead)
            return at if at > now else _at(now, time, ahead + 7)
        case _:
            pass
    try:
        moment = datetime.fromisoformat(" ".join(words))
    except ValueError:
        raise ValueError(f"{' '.join(words)!r} is neither a time nor a window") from None
    # An operator who gives no offset means the clock of the host.
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=now.tzinfo)


def _at(now: datetime, time: str, days: int) -> datetime:
    start = weekly([], time, 1)[0].start
    return (now + days * ONE_DAY).replace(hour=start // 60, minute=start % 60, second=0, microsecond=0)
