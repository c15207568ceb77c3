# SPDX-License-Identifier: Apache-2.0
"""Turns of the expensive calls: each user has one at a time, so that none waits for the calls of another user.

Reads that need no authorization are cheap for the client and not for the daemon, whose one thread also runs the update.
The users other than root share one turn of each kind for them, and after it comes a pause in proportion to its cost. A
single client does not notice that; many of them cannot take more than a part of the daemon's time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

# Seconds between the ends of two shared turns, and bytes of their answers per second.
PAUSE: Final = 0.05
RATE: Final = 2 << 20

# A pause has this many times the seconds of a turn, at most ``LONGEST``.
REST: Final = 2.0
LONGEST: Final = 2.0


@dataclass(eq=False)
class Turn:
    """``answered`` is called with the bytes of the answer."""

    size: int = 0

    def answered(self, text: str) -> str:
        self.size = len(text)
        return text


@dataclass(eq=False)
class _Own:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Calls that have the turn or wait for it.
    calls: int = 0


@dataclass(eq=False)
class _Shared:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # The time of the loop before which no turn begins.
    resting: float = 0.0


@dataclass(eq=False)
class Turns:
    """``own``: a turn of the user. ``shared``: also one of all users other than root."""

    _own: dict[tuple[str, int], _Own] = field(default_factory=dict, init=False)
    _shared: dict[str, _Shared] = field(default_factory=dict, init=False)

    @asynccontextmanager
    async def own(self, kind: str, uid: int) -> AsyncIterator[None]:
        own = self._own.setdefault((kind, uid), _Own())
        own.calls += 1
        try:
            async with own.lock:
                yield
        finally:
            own.calls -= 1
            # Users who have left leave nothing behind.
            if not own.calls:
                del self._own[kind, uid]

    @asynccontextmanager
    async def shared(self, kind: str, uid: int) -> AsyncIterator[Turn]:
        turn = Turn()
        async with self.own(kind, uid):
            if uid == 0:
                yield turn
                return
            shared, clock = self._shared.setdefault(kind, _Shared()), asyncio.get_running_loop().time
            async with shared.lock:
                await asyncio.sleep(shared.resting - clock())
                began = clock()
                try:
                    yield turn
                finally:
                    cost = max(PAUSE, REST * (clock() - began), turn.size / RATE)
                    shared.resting = clock() + min(cost, LONGEST)
