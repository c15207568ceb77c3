# SPDX-License-Identifier: Apache-2.0
"""Durations as operators write them, and differences of times."""

from __future__ import annotations

import pytest

from nodeagent.core.times import add_seconds, parse_duration, seconds_until

NOW = "2026-11-28T20:00:00.000Z"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("90s", 90),
        ("5m", 300),
        ("30min", 1800),
        ("2h", 7200),
        ("3 d", 259200),
        (f"{'9' * 20}s", int("9" * 20)),
    ],
)
def test_a_duration(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "s", "0s", "000h", "-1s", "1.5h", "1w", "1h30m", "\u00b2s", "\u0663s", f"{'9' * 21}s"]
)
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_differences() -> None:
    assert seconds_until("2026-11-28T21:00:00+01:00", NOW) == 0.0
    assert seconds_until("2026-11-28T19:59:59Z", NOW) == -1.0
    assert seconds_until("", NOW) is None
    assert add_seconds(NOW, 0.5) == "2026-11-28T20:00:00.500Z"
    assert add_seconds("2026-11-28T21:00:00+01:00", 86400) == "2026-11-29T20:00:00.000Z"
