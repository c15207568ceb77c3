# SPDX-License-Identifier: Apache-2.0
"""Arithmetic with times of RFC 3339, and durations as operators write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

# The names of systemd.time(7), without its combinations.
UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def add_seconds(now: str, seconds: float) -> str:
    when = datetime.fromisoformat(now) + timedelta(seconds=seconds)
    # Three digits, as all times of the agent have, because they are compared as text.
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_until(until: str, now: str) -> float | None:
    """Return the seconds from ``now``, negative after ``until``; None without an end."""
    return (datetime.fromisoformat(until) - datetime.fromisoformat(now)).total_seconds() if until else None


def parse_duration(text: str) -> int:
    """Return the seconds of 90s, 30min, 2h or 3d, at least 1. Raise ``ValueError``."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = UNITS.get(text[len(number) :].strip())
    # str.isdigit is also true for digits such as ², which int() rejects. int() takes time for very many digits.
    if unit is None or not (number.isascii() and number.strip().isdigit() and len(number) <= 20) or int(number) == 0:
        raise ValueError(f"{text!r} is not a duration")
    return int(number) * unit
