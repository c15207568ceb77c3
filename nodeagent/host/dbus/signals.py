# SPDX-License-Identifier: Apache-2.0
"""Subscriptions to signals: the match rule for the bus, and the queue of the signals that arrived.

Every signal is matched again on arrival, because any user may send a signal directly to this connection. A sender given
by its well-known name is compared with the current owner of the name, which ``Bus`` tracks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from nodeagent.errors import AgentError
from nodeagent.host.dbus.errors import BusRetryable
from nodeagent.host.dbus.header import Message, MessageKind
from nodeagent.reasons import Reason

# Seconds; the default of libdbus and sd-bus.
CALL_TIMEOUT = 25.0

# Signals that were not read yet. A subscriber that is further behind reads the state instead.
_MAX_QUEUED = 10_000

BUS_NAME = "org.freedesktop.DBus"


@dataclass(frozen=True, slots=True)
class Match:
    """A filter for signals of ``interface``; the other fields apply where they are not ""."""

    interface: str
    member: str = ""
    sender: str = ""
    path: str = ""
    arg0: str = ""

    def rule(self) -> str:
        parts = [f"{f.name}='{value}'" for f in fields(self) if (value := getattr(self, f.name))]
        if any(part.count("'") != 2 for part in parts):
            raise ValueError(f"a match rule cannot hold a quote: {parts}")
        return ",".join(["type='signal'", *parts])

    @property
    def watched_name(self) -> str:
        """The well-known name whose owner must be tracked, "" if there is none."""
        return "" if self.sender.startswith(":") or self.sender == BUS_NAME else self.sender

    def accepts_header(self, signal: Message, owners: Mapping[str, str]) -> bool:
        """Match everything except the body, which is not decoded yet."""
        return (
            self.interface == signal.interface
            and self.member in ("", signal.member)
            and self.path in ("", signal.path)
            # A name without an owner has "", and so does a signal without a sender: these two must not match.
            and (self.sender in ("", signal.sender) or owners.get(self.sender, "") == signal.sender != "")
        )

    def accepts(self, signal: Message, owners: Mapping[str, str]) -> bool:
        return self.accepts_header(signal, owners) and (
            not self.arg0 or (len(signal.body) > 0 and signal.body[0] == self.arg0)
        )


class Signals:
    """The signals that arrived since the subscription, oldest first.

    ``send`` makes a call on the connection of the subscription.
    """

    def __init__(self, match: Match, send: Callable[[Message, float], Awaitable[Message]]) -> None:
        self._send = send
        self._queue: deque[Message] = deque()
        self._wake = asyncio.Event()
        self._error: AgentError | None = None
        self.match = match

    @property
    def waiting(self) -> bool:
        """Whether a signal arrived that was not read yet."""
        return bool(self._queue)

    async def next(self) -> Message:
        """Return the next signal. Waits without a deadline.

        Raises the error of the connection if it was lost, after the signals that arrived before.
        """
        # Signals that arrived before the loss of the connection are delivered before its error.
        while not self._queue:
            if self._error is not None:
                raise self._error
            self._wake.clear()
            await self._wake.wait()
        return self._queue.popleft()

    async def first(self, accepts: Callable[[Sequence[Any]], bool]) -> Sequence[Any]:
        """Return the body of the first signal that ``accepts`` accepts, and drop the signals before it. No deadline."""
        while not accepts(body := (await self.next()).body):
            pass
        return body

    async def call(
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str = "",
        body: Sequence[Any] = (),
        *,
        timeout: float = CALL_TIMEOUT,
    ) -> list[Any]:
        """Call a method as ``Bus.call`` does, on the connection on which these signals arrive."""
        message = Message(MessageKind.CALL, path, interface, member, destination, signature=signature, body=body)
        return list((await self._send(message, timeout)).body)

    def put(self, signal: Message) -> None:
        # A dropped signal would be missed without notice. A failed subscription makes the subscriber read the state
        # again.
        if len(self._queue) >= _MAX_QUEUED:
            self.fail(BusRetryable("too many signals at once", reason=Reason.SIGNALS_LOST))
        elif self._error is None:
            self._queue.append(signal)
            self._wake.set()

    def fail(self, error: AgentError) -> None:
        self._error = self._error or error
        self._wake.set()
