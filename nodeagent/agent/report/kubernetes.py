"""Tells the cluster what happens to its node, behind the back of what happens: nothing waits for it, and nothing fails
because of it.

The conditions are one state, of which only the latest counts. Notices wait in a queue while the API server is away, and
are told with the time when they were so; when there are too many the oldest are dropped, and that is told as well.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Protocol

from nodeagent import log
from nodeagent.core.backoff import delays, jittered
from nodeagent.core.report.conditions import NodeState, shape
from nodeagent.core.report.node_events import Notice, Notices, node_state
from nodeagent.core.report.status import Status
from nodeagent.core.update.events import Event
from nodeagent.core.update.ports.host import Clock
from nodeagent.errors import AgentError, Refused, Retryable, Terminal, Unreachable

__all__ = ["Conditions", "Teller", "Writer"]

QUEUE: Final = 100  # notices: an update has ten, a drain with blocked pods as many more
QUICK: Final = 1.0
"""Seconds in which a state that changes again is told once: most updates pass what precedes them faster than that."""

WORDS_EVERY: Final = 15.0
"""Seconds between two writes of conditions that differ in their words only: the pods of a drain go one by one."""

FAREWELL: Final = 3.0
"""Seconds by which telling may hold up the end of the daemon."""

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 120.0
"""Seconds between two tries while the API server does not answer."""


class Conditions(Protocol):
    async def tell(self, state: NodeState) -> None: ...


class Writer(Protocol):
    async def write(self, notice: Notice, at: float) -> None: ...


class Teller:
    """``sink`` is one of the report's. ``chance`` spreads the agents of a fleet."""

    def __init__(self, conditions: Conditions, events: Writer, clock: Clock, chance: Callable[[], float]) -> None:
        self._conditions = conditions
        self._events = events
        self._clock = clock
        self._chance = chance
        self._notices = Notices()
        self._queue: deque[tuple[Notice, float]] = deque()
        self._dropped = 0
        self._state = NodeState()
        self._told: tuple[NodeState, float] | None = None
        self._wake = asyncio.Event()
        self._complained: set[str] = set()

    def begin(self, status: Status) -> None:
        """What was so when the daemon started: the conditions may say something else."""
        self._state = node_state(status)
        self._notices.begin(status)
        self._wake.set()

    def sink(self, event: Event, status: Status) -> None:
        now = self._clock.monotonic()
        self._state = node_state(status)
        for notice in self._notices.of(event, status, now):
            if all(notice != waiting for waiting, _ in self._queue):  # a pod that is blocked is so at every look
                self._queue.append((notice, now))
        while len(self._queue) > QUEUE:
            self._queue.popleft()
            self._dropped += 1
        if self._queue or self._pending():
            self._wake.set()

    async def run(self) -> None:
        """For ever. What is not told when it is cancelled has a moment left: the host may be about to go off."""
        try:
            await self._live()
        finally:
            if self._queue or self._pending():
                with suppress(AgentError, TimeoutError):
                    async with asyncio.timeout(FAREWELL):
                        await self._tell(at_once=True)

    async def _live(self) -> None:
        pauses = self._pauses()
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(jittered(QUICK, self._chance()))
            try:
                await self._tell()
            except (Unreachable, Retryable):
                await asyncio.sleep(jittered(next(pauses), self._chance()))
                self._wake.set()
                continue
            pauses = self._pauses()
            if self._pending():  # words, which wait for the next ones
                asyncio.get_running_loop().call_later(WORDS_EVERY, self._wake.set)

    async def _tell(self, *, at_once: bool = False) -> None:
        if self._due() or (at_once and self._pending()):
            state = self._state
            with self._no_complaint_twice():
                await self._conditions.tell(state)
            self._told = (state, self._clock.monotonic())
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            words = f"{dropped} older notices were dropped while the API server was away"
            self._queue.appendleft((Notice("NoticesDropped", "Report", words), self._clock.monotonic()))
        while self._queue:
            notice, at = self._queue[0]
            with self._no_complaint_twice():
                await self._events.write(notice, at)
            if self._queue and self._queue[0] == (notice, at):  # and not dropped meanwhile
                self._queue.popleft()

    def _pending(self) -> bool:
        return self._told is None or self._told[0] != self._state

    def _due(self) -> bool:
        if self._told is None:
            return True
        told, at = self._told
        patience = WORDS_EVERY if shape(told) == shape(self._state) else 0.0
        return told != self._state and self._clock.monotonic() - at >= patience

    def _pauses(self) -> Iterator[float]:
        return iter(delays(FIRST_PAUSE, LONGEST_PAUSE))

    def _no_complaint_twice(self) -> _Once:
        return _Once(self._complained)


class _Once:
    """What the cluster refuses for good (a role that lacks a verb, a Node that is gone) is logged once, and what was to
    be told is given up."""

    def __init__(self, known: set[str]) -> None:
        self._known = known

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, Refused | Terminal) or isinstance(error, Unreachable | Retryable):
            return False
        self._complain(error)
        return True

    def _complain(self, error: AgentError) -> None:
        if error.message not in self._known:
            self._known.add(error.message)
            log.get(__name__).warning(f"the cluster is not told: {error.message}", reason=error.reason)
