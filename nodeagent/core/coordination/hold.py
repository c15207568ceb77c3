"""A delay of one update that an operator requested: a start time, a weekly window, or no reboot until it is requested.

The time is compared with the wall clock at each attempt, so a clock that is set, and a restart, do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from nodeagent.core.coordination.windows import Schedule, parse_windows, weekly

# Days from a request to the start of its update, at most: a later one is a typing error.
MAX_DAYS = 366
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Hold:
    """``digest`` is that of the config. ``not_before`` is RFC 3339, ``window`` has the form of ``windows.open``; "" for
    none. With ``no_reboot``, an update that reboots waits before its first write, and no other one falls back to a
    reboot. ``requester`` is the operator."""

    digest: str
    not_before: str = ""
    window: str = ""
    no_reboot: bool = False
    requester: str = ""


@dataclass(frozen=True, slots=True)
class Waits:
    """``until`` None: until an operator requests the reboot, or without end."""

    until: datetime | None
    reboot: bool = False


def start_of(text: str) -> datetime:
    """Return the time of RFC 3339. Raise ``ValueError``."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    return found


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
    found = _moment(words, now.astimezone(zone))
    if found <= now:
        raise ValueError(f"{text!r} is in the past")
    if found > now + MAX_DAYS * DAY:
        raise ValueError(f"{text!r} is more than {MAX_DAYS} days ahead")
    return found.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"), ""


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
        found = datetime.fromisoformat(" ".join(words))
    except ValueError:
        raise ValueError(f"{' '.join(words)!r} is neither a time nor a window") from None
    # An operator who gives no offset means the clock of the host.
    return found if found.tzinfo is not None else found.replace(tzinfo=now.tzinfo)


def _at(now: datetime, time: str, days: int) -> datetime:
    start = weekly([], time, 1)[0].start
    return (now + days * DAY).replace(hour=start // 60, minute=start % 60, second=0, microsecond=0)
