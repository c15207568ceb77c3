# SPDX-License-Identifier: Apache-2.0
"""A loop of which the clock jumps to the next timer, so that hours of a fleet take seconds."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    _now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        waits: Any = self
        if not waits._ready and waits._scheduled:
            self._now = max(self._now, waits._scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def exponent(sizes: Sequence[int], counts: Sequence[float]) -> float:
    """Return the exponent of the growth of ``counts`` with ``sizes``: the slope of the logarithms."""
    across, up = [math.log(size) for size in sizes], [math.log(count) for count in counts]
    middle, height = sum(across) / len(across), sum(up) / len(up)
    slope = sum((x - middle) * (y - height) for x, y in zip(across, up, strict=True))
    return round(slope / sum((x - middle) ** 2 for x in across), 3)
