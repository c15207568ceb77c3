# SPDX-License-Identifier: Apache-2.0
"""Publishes node conditions and Kubernetes Events asynchronously: no update waits for them or fails because of them.

The conditions are one state, of which only the latest counts. Events wait in a queue while the API server is away, and
have the time at which they occurred. If the queue is full, the oldest are dropped, which is an Event too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

from nodeagent import log
from nodeagent.core.backoff import delays, jittered
from nodeagent.errors import AgentError, Refused, Retryable, Terminal, Unreachable
from nodeagent.features.cluster.decide.conditions import NodeState, node_state, shape
from nodeagent.features.cluster.decide.machine_config_node import progress_of
from nodeagent.features.cluster.decide.node_event_source import NodeEventSource
from nodeagent.report.node_events import NodeEvent
from nodeagent.report.status import Status
from nodeagent.update.ports.events import DaemonStarted, Event
from nodeagent.update.ports.host import Clock

# An update has ten events, and a drain with blocked pods as many more.
QUEUE: Final = 100

# Seconds for which changes of the state are collected: most updates pass the phases before the lease faster.
QUICK: Final = 1.0

# Seconds between two writes of conditions of which only messages differ: the pods of a drain go one by one.
TEXT_EVERY: Final = 15.0

# Seconds by which the last write may delay the end of the daemon.
FLUSH_WITHIN: Final = 3.0

# Seconds between two attempts while the API server does not answer: the first and the longest pause.
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 120.0


@dataclass(eq=False)
class ClusterReporter:
    """Writes what ``sink``, a sink of the report, has received, with ``publish`` and ``write``. ``publish`` returns the
    seconds after which the same state is to be published again, None if all of it was written.

    ``random`` spreads the agents of a fleet.
    ``progress``: the state has the progress of the update, for the MachineConfigNode."""

    publish: Callable[[NodeState], Awaitable[float | None]]
    write: Callable[[NodeEvent, float], Awaitable[None]]
    clock: Clock
    random: Callable[[], float]
    _: KW_ONLY
    progress: bool = False
    _source: NodeEventSource = field(default_factory=NodeEventSource, init=False)
    _queue: deque[tuple[NodeEvent, float]] = field(default_factory=deque, init=False)
    _dropped: int = field(default=0, init=False)
    _state: NodeState = field(default_factory=NodeState, init=False)
    _published: tuple[NodeState, float] | None = field(default=None, init=False)
    _again: asyncio.TimerHandle | None = field(default=None, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _logged: set[str] = field(default_factory=set, init=False)

    def begin(self, status: Status) -> None:
        """Set the state at the start of the daemon, which has no Event of the Node."""
        self._state = self._state_of(status)
        self._source.begin(status)
        # The conditions of the Node may still be those of the previous process.
        self._wake.set()

    def sink(self, event: Event, status: Status) -> None:
        if isinstance(event, DaemonStarted):
            self.begin(status)
            return
        now = self.clock.monotonic()
        self._state = self._state_of(status)
        for node_event in self._source.events_for(event, status, now):
            # A blocked pod gives the same event at every poll.
            if all(node_event != waiting for waiting, _ in self._queue):
                self._queue.append((node_event, now))
        while len(self._queue) > QUEUE:
            self._queue.popleft()
            self._dropped += 1
        if self._queue or self._pending():
            self._wake.set()

    async def run(self) -> None:
        """Write without end, and what is pending within ``FLUSH_WITHIN`` when cancelled."""
        try:
            await self._write_changes()
        finally:
            # The host may be about to reboot or power off, and controllers should learn the reason.
            if self._queue or self._pending():
                with suppress(AgentError, TimeoutError):
                    async with asyncio.timeout(FLUSH_WITHIN):
                        await self._publish(at_once=True)
            self._publish_again(None)

    async def _write_changes(self) -> None:
        pauses = delays(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            await self._wake.wait()
            # Cleared before the write, so that an event during the write causes another one.
            self._wake.clear()
            await asyncio.sleep(jittered(QUICK, self.random()))
            try:
                await self._publish()
            except (Unreachable, Retryable):
                await asyncio.sleep(jittered(next(pauses), self.random()))
                self._wake.set()
                continue
            pauses = delays(FIRST_PAUSE, LONGEST_PAUSE)
            if self._pending():
                # Only a message has changed; it is written together with the next ones.
                asyncio.get_running_loop().call_later(TEXT_EVERY, self._wake.set)

    async def _publish(self, *, at_once: bool = False) -> None:
        if self._due() or (at_once and self._pending()):
            state = self._state
            after = None
            with self._log_refusal_once():
                after = await self.publish(state)
            self._published = (state, self.clock.monotonic())
            self._publish_again(after)
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            text = f"{dropped} older events were dropped while the API server was away"
            # The notice comes first, because the dropped events were older than those in the queue.
            self._queue.appendleft((NodeEvent("NoticesDropped", "Report", text), self.clock.monotonic()))
        while self._queue:
            event, at = self._queue[0]
            with self._log_refusal_once():
                await self.write(event, at)
            # The sink may have dropped this event during the write, because the queue was full.
            if self._queue and self._queue[0] == (event, at):
                self._queue.popleft()

    def _publish_again(self, after: float | None) -> None:
        def again() -> None:
            self._published = None
            self._wake.set()

        if self._again is not None:
            self._again.cancel()
        self._again = None if after is None else asyncio.get_running_loop().call_later(after, again)

    def _state_of(self, status: Status) -> NodeState:
        if not self.progress:
            return node_state(status)
        # Only a node that its cluster controls has a MachineConfigNode.
        return replace(node_state(status), progress=progress_of(status))

    def _pending(self) -> bool:
        return self._published is None or self._published[0] != self._state

    def _due(self) -> bool:
        if self._published is None:
            return True
        state, at = self._published
        pause = TEXT_EVERY if shape(state) == shape(self._state) else 0.0
        return state != self._state and self.clock.monotonic() - at >= pause

    @contextmanager
    def _log_refusal_once(self) -> Iterator[None]:
        """Give up what a repetition does not change (a role lacks a verb, the Node is gone). Log each refusal once."""
        try:
            yield
        except (Refused, Terminal) as error:
            if error.message not in self._logged:
                self._logged.add(error.message)
                log.get(__name__).warning(f"cannot report to the cluster: {error.message}", reason=error.reason)
