# SPDX-License-Identifier: Apache-2.0
"""Zones that make it hard, and moments near their jumps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

ZONES: Final = (
    "UTC",
    "Europe/Prague",
    "America/St_Johns",  # not on the hour
    "Australia/Lord_Howe",  # half an hour of daylight saving
    "Pacific/Apia",  # had no 30 December 2011
    "Africa/Casablanca",  # back in the middle of the year
    "America/Havana",  # jumps at midnight
    "Asia/Kathmandu",
)
JUMPS: Final = (
    datetime(2011, 12, 30, 9, tzinfo=UTC),
    datetime(2026, 2, 15, 2, tzinfo=UTC),
    datetime(2026, 3, 8, 5, tzinfo=UTC),
    datetime(2026, 3, 29, 1, tzinfo=UTC),
    datetime(2026, 4, 4, 15, tzinfo=UTC),
    datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
    datetime(2026, 10, 25, 1, tzinfo=UTC),
    datetime(2026, 11, 1, 5, tzinfo=UTC),
)
zones = st.sampled_from(ZONES).map(ZoneInfo)
moments = st.builds(
    lambda jump, minutes: jump + timedelta(minutes=minutes), st.sampled_from(JUMPS), st.integers(-2000, 2000)
)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text + "+00:00")
