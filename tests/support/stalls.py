"""Stalls of an event loop, measured as processor time of its thread in one turn.

A machine with other work to do does not look like a slow daemon, and work in other threads does not count.
"""

from __future__ import annotations

import asyncio
import time

__all__ = ["MAX_STALL", "Stalls"]

MAX_STALL = 0.1
"""Seconds of processor time in one turn of the event loop."""


class Stalls:
    """The longest turn of the loop, in seconds of its thread's processor time."""

    def __init__(self) -> None:
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
        self._handle.cancel()
        return self.worst
