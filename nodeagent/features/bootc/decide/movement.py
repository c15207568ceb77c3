# SPDX-License-Identifier: Apache-2.0
"""Whether a unit still moves, by what systemd counts of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# Below these a unit stands still, over any time: an idle connection is kept alive with some 100 bytes in 15 seconds,
# and idle programs of Go and Rust look at their timers.
LEAST_BYTES: Final = 64 << 10
LEAST_WORK: Final = 1_000_000_000

# The value of systemd for what it does not count.
_UNKNOWN: Final = (1 << 64) - 1
# "layers already present: 5; layers needed: 2 (84.3 MB)", or "layers stored: 5 needed: 2 (84.3 MB)" before 2024.
_NEEDED: Final = re.compile(r"\bneeded: ([0-9]{1,6})\b")


@dataclass(frozen=True, slots=True)
class Consumed:
    """``received`` are the bytes from the network, ``worked`` the nanoseconds of processors; None: not counted."""

    received: int | None
    worked: int | None


def counters(received: int, worked: int) -> Consumed:
    """Return the counters by the values of systemd."""
    return Consumed(*(None if value == _UNKNOWN else value for value in (received, worked)))


class Movement:
    """Compares the counters with those at the last movement."""

    def __init__(self) -> None:
        self._last = Consumed(0, 0)

    def moved(self, now: Consumed) -> bool:
        """Return whether the unit moved since the last movement. One of which nothing is counted moves."""
        received, worked = (
            None if value is None else value - (before or 0)
            for value, before in ((now.received, self._last.received), (now.worked, self._last.worked))
        )
        if received is None and worked is None:
            return True
        if (received or 0) < LEAST_BYTES and (worked or 0) < LEAST_WORK:
            return False
        self._last = now
        return True


def needed_layers(output: str) -> int:
    """Return how many layers `ostree container` says that it needs, 0 before it says so."""
    found = _NEEDED.search(output)
    return int(found[1]) if found else 0
