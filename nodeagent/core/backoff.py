# SPDX-License-Identifier: Apache-2.0
"""How long to wait before trying again."""

from __future__ import annotations

from collections.abc import Iterator


def delays(first: float, cap: float) -> Iterator[float]:
    """Seconds: ``first``, doubled each time, at most ``cap``, without end."""
    delay = first
    while True:
        yield min(delay, cap)
        delay = min(delay * 2, cap)


def jittered(delay: float, random: float) -> float:
    """Return ``delay`` plus up to a fifth of it. ``random`` is a number from 0 to 1."""
    # A fleet that failed together must not come back together.
    return delay * (1 + 0.2 * random)
