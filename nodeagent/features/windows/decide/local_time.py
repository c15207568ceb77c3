# SPDX-License-Identifier: Apache-2.0
"""Moments at which a local clock shows a time: once, twice, or never."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

SECOND: Final = timedelta(seconds=1)


def local(at: datetime, zone: tzinfo) -> datetime:
    """Raises ``ValueError`` for a time without an offset."""
    if at.tzinfo is None:
        raise ValueError("a time without an offset")
    return at.astimezone(zone)


def readings(wall: datetime, zone: tzinfo) -> Iterator[datetime]:
    """Yield the times in UTC of a local time. If that occurs twice or never, the jump is between both (PEP 495)."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    yield first
    if first == second:
        return
    yield second
    low, high = min(first, second), max(first, second)
    before = low.astimezone(zone).utcoffset()
    # There is no interface for the moment at which a zone changes its offset, so it is found by bisection.
    while high - low > SECOND:
        middle = low + (high - low) // 2
        if middle.astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    yield high.replace(microsecond=0)


def first_and_last(wall: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """Return the first and the last moment at which the clock shows a local time; the jump over it for none."""
    times = list(readings(wall, zone))
    shown = [moment for moment in times if moment.astimezone(zone).replace(tzinfo=None) == wall]
    return (min(shown), max(shown)) if shown else (times[-1], times[-1])
