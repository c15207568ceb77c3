# SPDX-License-Identifier: Apache-2.0
"""The start of one update that an operator requested: a time, or a window.

It is compared with the wall clock at each attempt, so a clock that is set, and a restart, do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from nodeagent.features.windows.decide.schedule import Schedule
from nodeagent.features.windows.decide.window import every, parse_windows

# Days from a request to the start of its update, at most: a later one is a typing error.
MAX_DAYS = 366
# The value of the option with which neither windows nor freezes hold.
ANY_TIME: Final = "yes"
ONE_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class RequestedStart:
    """``not_before`` is RFC 3339, ``window`` has the form of ``windows.open``; "" for none."""

    not_before: str = ""
    window: str = ""


@dataclass(frozen=True, slots=True)
class Waits:
    """``until`` None: without end."""

    until: datetime | None


def start_of(text: str) -> datetime:
    """Return the time of RFC 3339. Raise ``ValueError``."""
    start = datetime.fromisoformat(text)
    if start.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    return start


def waits(start: RequestedStart, now: datetime, zone: tzinfo) -> Waits | None:
    """Return what an update waits for at ``now``; None if it may begin."""
    if start.not_before and now < (at := start_of(start.not_before)):
        return Waits(at)
    if start.window and not (schedule := Schedule(parse_windows([start.window]), zone)).is_open(now):
        return Waits(schedule.opens(now))
    return None


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
            ahead = (every([day], time, 1)[0].day - now.weekday()) % 7
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
    start = every([], time, 1)[0].start
    return (now + days * ONE_DAY).replace(hour=start // 60, minute=start % 60, second=0, microsecond=0)
