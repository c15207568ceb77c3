# SPDX-License-Identifier: Apache-2.0
"""Stalls of an event loop, measured as processor time of its thread in one turn.

A machine with other work to do does not look like a slow daemon, and work in other threads does not count. Neither
does what the process of the tests has and a daemon has not: a processor that others slow down is measured beside it,
and the heap of ten thousand tests is left out of each collection.
"""

from __future__ import annotations

import asyncio
import gc
import time

__all__ = ["MAX_STALL", "Stalls", "slowness"]

MAX_STALL = 0.1
"""Seconds of processor time in one turn of the event loop, where ``slowness`` is 1."""
_USUAL = 0.011
"""Seconds of processor time of ``_work`` on the machine on which ``MAX_STALL`` was set."""


def _work() -> float:
    started = time.thread_time()
    table = {}
    for number in range(100_000):
        table[number] = str(number)
    return time.thread_time() - started


def slowness() -> float:
    """How many times longer than usual this processor takes now, at least 1."""
    return max(1.0, min(_work() for _ in range(3)) / _USUAL)


class Stalls:
    """The longest turn of the loop, in seconds of its thread's processor time."""

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()
        self.worst = 0.0
        self._last = time.thread_time()
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now = time.thread_time()
        self.worst = max(self.worst, now - self._last)
        self._last = now
        self._handle = self._loop.call_soon(self._turn)

    def stop(self) -> float:
        """The longest turn, as long as it would have been on a processor of the usual speed."""
        self._handle.cancel()
        gc.unfreeze()
        return self.worst / slowness()
