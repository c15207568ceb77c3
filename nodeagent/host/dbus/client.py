# SPDX-License-Identifier: Apache-2.0
"""The system bus: calls with a deadline, signals as a context, and a connection that comes back.

Contract
- Every call ends within its ``timeout``, connecting included, with an answer or an ``AgentError``.
- A lost connection fails all calls under way with reason ``BusConnectionLost``; the next call connects again. No
  message is sent twice: only the caller knows whether that would be harmless.
- ``signals`` subscribes first and yields then. A subscription belongs to one connection, and ``Signals.call`` uses that
  connection or fails, so the signals that answer a call cannot be missed.
- Unrequested messages cost no more than reading their header. A signal is decoded if a subscription matches it and it
  was broadcast; any user may send signals to a single connection, but only the bus has a reason to. A call is decoded
  if the service that ``serve`` installed admits it.
- Values are plain (no variants); structs and arrays are lists, ``ay`` is bytes.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from nodeagent.errors import AgentError, ServiceUnavailable
from nodeagent.host.dbus.codec import MAX_ELEMENTS
from nodeagent.host.dbus.connection import Connection, system_bus_address
from nodeagent.host.dbus.errors import (
    BUS_SERVICE,
    BusRetryable,
    BusTerminal,
    BusUnreachable,
    connection_lost,
    from_bus,
    service_name,
)
from nodeagent.host.dbus.header import Message, MessageKind
from nodeagent.host.dbus.signals import BUS_NAME, CALL_TIMEOUT, Match, Signals
from nodeagent.reasons import Reason

# Seconds for which one call tries to connect. A bus that restarts is back within one or two.
CONNECT_FOR = 10.0

UNDECODABLE = "the arguments cannot be decoded, or are too many"

_BUS_PATH = "/org/freedesktop/DBus"
# Seconds between two attempts to connect, doubled up to _LAST_PAUSE; each is jittered.
_FIRST_PAUSE = 0.05
_LAST_PAUSE = 2.0
_MAX_UIDS = 4096


class Bus:
    """A client of a bus. It connects at the first use.

    ``address`` is for tests and private sockets; "" is the system bus.

    ``peer`` means the private socket of a service instead of a bus. There are no names, so destinations are "", signals
    need no subscription, and a lost connection is not replaced, because such a socket usually serves one transaction.

    ``connect_for`` is for how many seconds attempts to connect are repeated. ``patience`` is how many seconds a single
    attempt may take at least: a slow bus is waited for, an absent one is not.
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
        # Connections that were lost.
        self.losses = 0
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._closed = False
        self._signals: list[Signals] = []
        # Owners of the watched names, which tell the signals of a service from those of other senders.
        self._owners: dict[str, str] = {}
        # Handlers of incoming calls, set by an exporter.
        self._admit_call: Callable[[Message], int] | None = None
        self._on_call: Callable[[Message], None] | None = None
        # Connections so far. The unique name of a caller is valid on one connection only.
        self.connections = 0
        # The users of callers on this connection, by unique name.
        self._uids: dict[str, int] = {}

    async def __aenter__(self) -> Bus:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def unique_name(self) -> str:
        """The unique name of the current connection, "" if there is none."""
        return self._connection.unique_name if self._connection is not None else ""

    def close(self) -> None:
        """Close the connection for good. Later calls fail."""
        self._closed = True
        if self._connection is not None:
            self._connection.close("closed by this side")

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
        """Call a method and return the values of the reply.

        ``interactive`` lets the service ask the user for a password.
        """
        message = Message(
            MessageKind.CALL,
            path,
            interface,
            member,
            destination,
            signature=signature,
            body=body,
            interactive=interactive,
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
        """Call a method that returns one file descriptor. The caller closes it."""
        message = Message(MessageKind.CALL, path, interface, member, destination, signature=signature, body=body)
        reply = await self._call(message, timeout, want_fds=1)
        return reply.fds[0]

    async def call_bus(self, member: str, signature: str = "", body: Sequence[Any] = ()) -> list[Any]:
        """Call a method of the bus itself."""
        return await self.call(BUS_NAME, _BUS_PATH, BUS_NAME, member, signature, body)

    async def get(
        self, destination: str, path: str, interface: str, name: str, *, timeout: float = CALL_TIMEOUT
    ) -> Any:
        """Return the value of one property."""
        reply = await self.call(
            destination, path, "org.freedesktop.DBus.Properties", "Get", "ss", (interface, name), timeout=timeout
        )
        return reply[0]

    @asynccontextmanager
    async def signals(self, match: Match, *, timeout: float = CALL_TIMEOUT) -> AsyncIterator[Signals]:
        """Subscribe to signals for as long as the context lasts. ``timeout`` is for the subscription.

        Two subscriptions with the same match are independent.
        """
        async with _deadline(timeout, f"subscription to {match.interface}", BUS_SERVICE):
            connection = await self._connected()
            if match.watched_name and not self._peer:
                await self._watch_owner(connection, match.watched_name)
        signals = Signals(match, lambda message, seconds: self._call(message, seconds, connection))
        # The queue exists before the rule does, so that the first signal after AddMatch finds it.
        self._signals.append(signals)
        try:
            # A connection that was lost in between has failed only the subscriptions that it knew by then.
            if connection.lost is not None:
                raise connection.lost
            if not self._peer:
                await self._call(_bus_message("AddMatch", match.rule()), timeout, connection)
            yield signals
        finally:
            self._signals.remove(signals)
            if connection.lost is None and not self._peer:
                # Do not wait: nothing could be done about a failure, and this may run during a cancellation.
                connection.send(_bus_message("RemoveMatch", match.rule(), no_reply=True))

    def serve(self, admit: Callable[[Message], int] | None, on_call: Callable[[Message], None] | None) -> None:
        """Set the handlers of incoming method calls. With None, all calls are refused.

        ``admit`` gets the header of a call. It returns how many elements of the body to decode, or ``UNDECODED``, or it
        answers the call with ``reply`` and returns 0. ``on_call`` gets the admitted calls and must answer them.
        """
        self._admit_call = admit
        self._on_call = on_call

    def known_uid(self, name: str) -> int | None:
        """Return the user of a connection if it is known already."""
        return self._uids.get(name)

    async def uid_of(self, name: str) -> int:
        """Return the user of a caller, by its unique name.

        A bus never reuses a unique name, but another bus may have the same one. Therefore the answer comes from the
        connection over which the call came.
        """
        if (uid := self._uids.get(name)) is not None:
            return uid
        connection = self._connection or await self._connected()
        uids = self._uids
        reply = await self._call(_bus_message("GetConnectionUnixUser", name), CALL_TIMEOUT, connection)
        # Unique names are never reused, so old entries only use memory.
        if len(uids) >= _MAX_UIDS:
            uids.clear()
        return uids.setdefault(name, int(reply.body[0]))

    def reply(self, to: Message, signature: str, body: Sequence[Any], *, error_name: str = "") -> None:
        """Reply to a call. Does nothing if no reply was requested, or if the connection of the call is lost."""
        if to.no_reply or self._connection is None or self._connection.lost is not None:
            return
        self._connection.send(
            Message(
                MessageKind.ERROR if error_name else MessageKind.RETURN,
                destination=to.sender,
                reply_serial=to.serial,
                error_name=error_name,
                signature=signature,
                body=body,
            )
        )

    def emit(self, path: str, interface: str, member: str, signature: str, body: Sequence[Any]) -> None:
        """Broadcast a signal. It is dropped while there is no connection."""
        if self._connection is not None and self._connection.lost is None:
            self._connection.send(Message(MessageKind.SIGNAL, path, interface, member, signature=signature, body=body))

    # -- calls ----------------------------------------------------------------------------------------------------

    async def _call(
        self, message: Message, timeout: float, connection: Connection | None = None, *, want_fds: int = 0
    ) -> Message:
        what = f"{message.interface}.{message.member}"
        service = service_name(message.destination)
        async with _deadline(timeout, what, service):
            reply = await (connection or await self._connected()).call(message)
        if reply.kind is MessageKind.ERROR:
            _close(reply.fds)
            error = from_bus(reply.error_name, reply.body, what)
            if isinstance(error, ServiceUnavailable):
                error.service = service
            raise error
        # Descriptors that were not requested are closed, or a service could exhaust the limit of this process.
        _close(reply.fds[want_fds:])
        if len(reply.fds) < want_fds:
            _close(reply.fds)
            raise BusTerminal(f"{what}: no file descriptor in the reply", reason=Reason.UNEXPECTED_REPLY)
        return reply

    async def _connected(self) -> Connection:
        # One task connects, the others wait for its connection.
        async with self._connecting:
            if self._connection is not None and self._connection.lost is None:
                return self._connection
            # The socket belongs to one transaction, which has ended.
            if self._connection is not None and self._peer:
                raise connection_lost("a private socket is not opened again")
            self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._connect_for
        pause = _FIRST_PAUSE
        while not self._closed:
            try:
                # Each attempt gets the whole time: a bus with a full backlog is slow, not absent.
                async with asyncio.timeout_at(max(until, loop.time() + self._patience)):
                    return self._adopt(await Connection.open(self._address, peer=self._peer))
            except (OSError, BusUnreachable, BusRetryable) as error:
                # TimeoutError is an OSError.
                # Jitter, because all clients of a restarted bus reconnect at the same moment.
                delay = pause * random.uniform(0.5, 1.5)  # noqa: S311
                if loop.time() + delay > until:
                    cause = str(error) or "no answer"
                    message = f"cannot reach {self._address}: {cause}"
                    unreachable = BusUnreachable(message, reason=Reason.BUS_UNREACHABLE, service=BUS_SERVICE)
                    unreachable.denied = isinstance(error, BusUnreachable) and error.denied
                    raise unreachable from error
            await asyncio.sleep(delay)
            pause = min(pause * 2, _LAST_PAUSE)
        raise connection_lost("closed by this side")

    def _adopt(self, connection: Connection) -> Connection:
        # Names may have other owners after a reconnection, and unique names begin again.
        self._owners = {}
        self._uids = {}
        self.connections += 1
        connection.admit = self._admit
        connection.on_message = self._on_message
        connection.on_undecodable = self._on_undecodable
        connection.on_lost = self._on_lost
        return connection

    # -- incoming messages --------------------------------------------------------------------------------------------

    async def _watch_owner(self, connection: Connection, name: str) -> None:
        """Track the owner of a name for the life of the connection. They are few, so subscribers are not counted."""
        if name in self._owners:
            return
        changed = Match(BUS_NAME, "NameOwnerChanged", sender=BUS_NAME, path=_BUS_PATH, arg0=name)
        await self._call(_bus_message("AddMatch", changed.rule()), CALL_TIMEOUT, connection)
        try:
            owner = (await self._call(_bus_message("GetNameOwner", name), CALL_TIMEOUT, connection)).body[0]
        except BusUnreachable:
            # No owner yet; the service may be activated later.
            owner = ""
        # A NameOwnerChanged that was read together with the reply is newer than it.
        if connection is self._connection:
            self._owners.setdefault(name, owner)

    def _admit(self, header: Message) -> int:
        if header.kind is MessageKind.SIGNAL:
            return MAX_ELEMENTS if self._is_wanted(header) else 0
        if self._admit_call is not None:
            return self._admit_call(header)
        error = "org.freedesktop.DBus.Error.UnknownObject"
        self.reply(header, "s", (f"no object at {header.path}",), error_name=error)
        return 0

    def _is_wanted(self, signal: Message) -> bool:
        if self._peer:
            return bool(self._signals)
        # Signals of the bus itself have no owner to check.
        if signal.sender == BUS_NAME:
            if signal.member == "NameOwnerChanged":
                return True
        elif signal.destination:
            # A signal to this connection alone is unsolicited: only broadcasts are subscribed to.
            return False
        return any(signals.match.accepts_header(signal, self._owners) for signals in self._signals)

    def _on_message(self, message: Message) -> None:
        if message.kind is MessageKind.SIGNAL:
            if message.member == "NameOwnerChanged" and message.sender == BUS_NAME and len(message.body) == 3:
                name, _, owner = message.body
                self._owners[name] = owner
            for signals in tuple(self._signals):
                if self._peer or signals.match.accepts(message, self._owners):
                    signals.put(message)
        elif self._on_call is not None:
            self._on_call(message)

    def _on_undecodable(self, header: Message) -> None:
        if header.kind is MessageKind.CALL:
            self.reply(header, "s", (UNDECODABLE,), error_name="org.freedesktop.DBus.Error.InvalidArgs")

    def _on_lost(self, error: AgentError) -> None:
        self.losses += 1
        for signals in self._signals:
            signals.fail(error)


def _bus_message(member: str, argument: str, *, no_reply: bool = False) -> Message:
    return Message(
        MessageKind.CALL, _BUS_PATH, BUS_NAME, member, BUS_NAME, signature="s", body=(argument,), no_reply=no_reply
    )


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
        raise BusRetryable(message, reason=Reason.BUS_TIMEOUT, service=service) from error
