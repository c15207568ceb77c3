# SPDX-License-Identifier: Apache-2.0
"""Arithmetic with times of RFC 3339."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def add_seconds(now: str, seconds: float) -> str:
    when = datetime.fromisoformat(now) + timedelta(seconds=seconds)
    # Three digits, as all times of the agent have, because they are compared as text.
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_until(until: str, now: str) -> float | None:
    """Return the seconds from ``now``, negative after ``until``; None without an end."""
    return (datetime.fromisoformat(until) - datetime.fromisoformat(now)).total_seconds() if until else None
