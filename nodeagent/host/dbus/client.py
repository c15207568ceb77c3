"""The system bus: calls with a deadline, signals as a context, and a connection that comes back.

Contract
- Every call ends within its ``timeout``, connecting included, with an answer or an ``AgentError``.
- A dropped connection fails all that was under way with reason ``BusConnectionLost``; the next call connects again.
  Nothing is sent twice by itself: only the caller knows whether that would be harmless.
- ``signals`` asks for the signals first and yields then. It belongs to one connection; ``Signals.call`` goes over that
  same one or fails, so an answer can never be awaited on a connection other than the one that was asked.
- What was not requested costs nothing but its header: a signal is decoded if a subscription matches it and it was
  broadcast (any user may send us signals directly; only the bus itself has a reason to), a call if the service that
  ``serve`` installed admits it.
- Values come back plain (no variants), structs and arrays as lists, ``ay`` as bytes.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from nodeagent.errors import AgentError, ServiceUnavailable
from nodeagent.host.dbus.address import system_bus_address
from nodeagent.host.dbus.codec import MAX_ELEMENTS, Kind, Message
from nodeagent.host.dbus.connection import Connection
from nodeagent.host.dbus.errors import (
    BUS_SERVICE,
    BusRetryable,
    BusTerminal,
    BusUnreachable,
    connection_lost,
    from_bus,
    service_name,
)
from nodeagent.host.dbus.match import BUS_NAME, Match

__all__ = ["ARGUMENTS", "CALL_TIMEOUT", "Bus", "Match", "Signals"]

CALL_TIMEOUT = 25.0
"""Seconds; what libdbus and sd-bus use where nothing else is said."""

CONNECT_FOR = 10.0
"""Seconds for which one call goes on trying to connect. A bus that restarts is back within one or two."""

ARGUMENTS = "the arguments cannot be decoded, or are too many"

_BUS_PATH = "/org/freedesktop/DBus"
_FIRST_PAUSE = 0.05  # seconds between two attempts to connect, doubled up to _LAST_PAUSE; each is jittered
_LAST_PAUSE = 2.0
_MAX_UIDS = 4096
_MAX_QUEUED = 10_000  # signals that nobody read; a subscription that far behind reads state instead


class Signals:
    """Signals that arrived since the subscription, oldest first."""

    def __init__(self, bus: Bus, connection: Connection, match: Match) -> None:
        self._bus = bus
        self._connection = connection
        self._queue: deque[Message] = deque()
        self._wake = asyncio.Event()
        self._error: AgentError | None = None
        self.match = match

    async def next(self) -> Message:
        """Waits without a deadline. Raises once the connection is lost, after what came before that was read."""
        while not self._queue:
            if self._error is not None:
                raise self._error
            self._wake.clear()
            await self._wake.wait()
        return self._queue.popleft()

    async def first(self, accepts: Callable[[Sequence[Any]], bool]) -> Sequence[Any]:
        """The body of the first signal for which ``accepts(body)``; those before it are dropped. No deadline."""
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
        """Like ``Bus.call``, on the connection on which these signals arrive."""
        message = Message(Kind.CALL, path, interface, member, destination, signature=signature, body=body)
        return list((await self._bus._call(message, timeout, self._connection)).body)

    def put(self, signal: Message) -> None:
        if len(self._queue) >= _MAX_QUEUED:
            self.fail(BusRetryable("too many signals at once", reason="SignalsLost"))
        elif self._error is None:
            self._queue.append(signal)
            self._wake.set()

    def fail(self, error: AgentError) -> None:
        self._error = self._error or error
        self._wake.set()


class Bus:
    """Connects when first used. ``address`` is for tests and private sockets; "" is the system bus.

    ``peer``: a service's private socket instead of a bus. There are no names, so destinations are "" and signals need
    no asking; and as such a socket usually serves one transaction, a lost one is simply lost.

    ``connect_for`` is how many seconds attempts to connect are repeated; ``patience`` how long a single one may take at
    least, so that a bus that is there but slow is waited for where one that is absent is not.
    """

    def __init__(
        self,
        address: str = "",
        *,
        peer: bool = False,
        connect_for: float = CONNECT_FOR,
        patience: float = _FIRST_PAUSE,
    ) -> None:
        self._address = address or system_bus_address()
        self._peer = peer
        self._connect_for = connect_for
        self._patience = patience
        self.losses = 0  # of connections
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._closed = False
        self._signals: list[Signals] = []
        self._owners: dict[str, str] = {}
        self._admit_call: Callable[[Message], int] | None = None
        self._on_call: Callable[[Message], None] | None = None
        self.connections = 0
        """How many there were: names of callers mean something on one connection only."""
        self._uids: dict[str, int] = {}  # of callers on this connection, by their unique names

    async def __aenter__(self) -> Bus:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def unique_name(self) -> str:
        """Of the present connection, "" if there is none."""
        return self._connection.unique_name if self._connection is not None else ""

    def close(self) -> None:
        """For good: later calls fail."""
        self._closed = True
        if self._connection is not None:
            self._connection.close("we closed it")

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
        interactive: bool = False,
    ) -> list[Any]:
        """``interactive`` lets the service ask the user at the terminal for a password."""
        message = Message(
            Kind.CALL, path, interface, member, destination, signature=signature, body=body, interactive=interactive
        )
        return list((await self._call(message, timeout)).body)

    async def call_for_fd(
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str = "",
        body: Sequence[Any] = (),
        *,
        timeout: float = CALL_TIMEOUT,
    ) -> int:
        """For methods that return one descriptor. It is the caller's to close."""
        message = Message(Kind.CALL, path, interface, member, destination, signature=signature, body=body)
        reply = await self._call(message, timeout, want_fds=1)
        return reply.fds[0]

    async def call_bus(
        self, member: str, signature: str = "", body: Sequence[Any] = (), *, timeout: float = CALL_TIMEOUT
    ) -> list[Any]:
        """A question to the bus itself."""
        return await self.call(BUS_NAME, _BUS_PATH, BUS_NAME, member, signature, body, timeout=timeout)

    async def get(
        self, destination: str, path: str, interface: str, name: str, *, timeout: float = CALL_TIMEOUT
    ) -> Any:
        """One property."""
        reply = await self.call(
            destination, path, "org.freedesktop.DBus.Properties", "Get", "ss", (interface, name), timeout=timeout
        )
        return reply[0]

    @asynccontextmanager
    async def signals(self, match: Match, *, timeout: float = CALL_TIMEOUT) -> AsyncIterator[Signals]:
        """Subscribed on entry; ``timeout`` is for that. Two of them with the same match do not disturb each other."""
        async with _deadline(timeout, f"subscription to {match.interface}", BUS_SERVICE):
            connection = await self._connected()
            if match.watched_name and not self._peer:
                await self._watch_owner(connection, match.watched_name)
        signals = Signals(self, connection, match)
        self._signals.append(signals)
        try:
            if connection.lost is not None:
                raise connection.lost
            if not self._peer:
                await self._call(_bus_message("AddMatch", match.rule()), timeout, connection)
            yield signals
        finally:
            self._signals.remove(signals)
            if connection.lost is None and not self._peer:
                # Without waiting: there is nothing to do about a failure, and this may run while we are cancelled.
                connection.send(_bus_message("RemoveMatch", match.rule(), no_reply=True))

    def serve(self, admit: Callable[[Message], int] | None, on_call: Callable[[Message], None] | None) -> None:
        """Who gets the method calls to us; None: they are all refused. ``admit`` gets the header of each, and returns
        the number of elements of its body that are to be decoded, or ``UNDECODED``, or answers it with ``reply`` and
        returns 0; ``on_call`` gets the admitted ones and must answer them."""
        self._admit_call = admit
        self._on_call = on_call

    def known_uid(self, name: str) -> int | None:
        """As ``uid_of``, without a question to the bus."""
        return self._uids.get(name)

    async def uid_of(self, name: str) -> int:
        """The user of a connection that called us, by its unique name: a bus gives none of them out twice, but another
        bus does, so the answer comes from the connection over which the call came, or there is none."""
        if (known := self._uids.get(name)) is not None:
            return known
        connection = self._connection or await self._connected()
        uids = self._uids
        reply = await self._call(_bus_message("GetConnectionUnixUser", name), CALL_TIMEOUT, connection)
        if len(uids) >= _MAX_UIDS:
            uids.clear()
        return uids.setdefault(name, int(reply.body[0]))

    def reply(self, to: Message, signature: str, body: Sequence[Any], *, error_name: str = "") -> None:
        """Nothing happens if nobody waits: no reply was wanted, or the connection of the call is gone."""
        if to.no_reply or self._connection is None or self._connection.lost is not None:
            return
        self._connection.send(
            Message(
                Kind.ERROR if error_name else Kind.RETURN,
                destination=to.sender,
                reply_serial=to.serial,
                error_name=error_name,
                signature=signature,
                body=body,
            )
        )

    def emit(self, path: str, interface: str, member: str, signature: str, body: Sequence[Any]) -> None:
        """A signal to whoever asked for it. Dropped while there is no connection: nobody could hear it."""
        if self._connection is not None and self._connection.lost is None:
            self._connection.send(Message(Kind.SIGNAL, path, interface, member, signature=signature, body=body))

    # -- calls ----------------------------------------------------------------------------------------------------

    async def _call(
        self, message: Message, timeout: float, connection: Connection | None = None, *, want_fds: int = 0
    ) -> Message:
        what = f"{message.interface}.{message.member}"
        service = service_name(message.destination)
        async with _deadline(timeout, what, service):
            reply = await (connection or await self._connected()).call(message)
        if reply.kind is Kind.ERROR:
            _close(reply.fds)
            error = from_bus(reply.error_name, reply.body, what)
            if isinstance(error, ServiceUnavailable):
                error.service = service
            raise error
        _close(reply.fds[want_fds:])
        if len(reply.fds) < want_fds:
            _close(reply.fds)
            raise BusTerminal(f"{what}: no file descriptor in the reply", reason="UnexpectedReply")
        return reply

    async def _connected(self) -> Connection:
        async with self._connecting:
            if self._connection is not None and self._connection.lost is None:
                return self._connection
            if self._connection is not None and self._peer:
                raise connection_lost("a private socket is not opened twice")
            self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._connect_for
        pause = _FIRST_PAUSE
        while not self._closed:
            try:
                # An attempt gets the whole time: a bus with a full backlog is slow, not absent.
                async with asyncio.timeout_at(max(until, loop.time() + self._patience)):
                    return self._adopt(await Connection.open(self._address, peer=self._peer))
            except (OSError, BusUnreachable, BusRetryable) as error:  # TimeoutError is an OSError
                # Jitter, because every client of a bus that restarted comes back at the same moment.
                delay = pause * random.uniform(0.5, 1.5)  # noqa: S311
                if loop.time() + delay > until:
                    why = str(error) or "it does not answer"
                    message = f"cannot reach {self._address}: {why}"
                    raise BusUnreachable(message, reason="BusUnreachable", service=BUS_SERVICE) from error
            await asyncio.sleep(delay)
            pause = min(pause * 2, _LAST_PAUSE)
        raise connection_lost("we closed it")

    def _adopt(self, connection: Connection) -> Connection:
        self._owners = {}
        self._uids = {}
        self.connections += 1
        connection.admit = self._admit
        connection.on_message = self._on_message
        connection.on_odd = self._on_odd
        connection.on_lost = self._on_lost
        return connection

    # -- what comes in --------------------------------------------------------------------------------------------

    async def _watch_owner(self, connection: Connection, name: str) -> None:
        """For the life of the connection; the few services we listen to are not worth counting subscribers."""
        if name in self._owners:
            return
        changed = Match(BUS_NAME, "NameOwnerChanged", sender=BUS_NAME, path=_BUS_PATH, arg0=name)
        await self._call(_bus_message("AddMatch", changed.rule()), CALL_TIMEOUT, connection)
        try:
            owner = (await self._call(_bus_message("GetNameOwner", name), CALL_TIMEOUT, connection)).body[0]
        except BusUnreachable:  # nobody has the name yet; the service may be activated later
            owner = ""
        # A NameOwnerChanged that was read together with the reply is newer than it.
        if connection is self._connection:
            self._owners.setdefault(name, owner)

    def _admit(self, header: Message) -> int:
        if header.kind is Kind.SIGNAL:
            return MAX_ELEMENTS if self._is_wanted(header) else 0
        if self._admit_call is not None:
            return self._admit_call(header)
        error = "org.freedesktop.DBus.Error.UnknownObject"
        self.reply(header, "s", (f"no object at {header.path}",), error_name=error)
        return 0

    def _is_wanted(self, signal: Message) -> bool:
        if self._peer:
            return bool(self._signals)
        if signal.sender == BUS_NAME:
            if signal.member == "NameOwnerChanged":
                return True
        elif signal.destination:
            return False
        return any(signals.match.accepts_header(signal, self._owners) for signals in self._signals)

    def _on_message(self, message: Message) -> None:
        if message.kind is Kind.SIGNAL:
            if message.member == "NameOwnerChanged" and message.sender == BUS_NAME and len(message.body) == 3:
                name, _, owner = message.body
                self._owners[name] = owner
            for signals in tuple(self._signals):
                if self._peer or signals.match.accepts(message, self._owners):
                    signals.put(message)
        elif self._on_call is not None:
            self._on_call(message)

    def _on_odd(self, header: Message) -> None:
        if header.kind is Kind.CALL:
            self.reply(header, "s", (ARGUMENTS,), error_name="org.freedesktop.DBus.Error.InvalidArgs")

    def _on_lost(self, error: AgentError) -> None:
        self.losses += 1
        for signals in self._signals:
            signals.fail(error)


def _bus_message(member: str, argument: str, *, no_reply: bool = False) -> Message:
    return Message(Kind.CALL, _BUS_PATH, BUS_NAME, member, BUS_NAME, signature="s", body=(argument,), no_reply=no_reply)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


@asynccontextmanager
async def _deadline(seconds: float, what: str, service: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        message = f"{what}: no answer within {seconds:g} s"
        raise BusRetryable(message, reason="BusTimeout", service=service) from error
