# SPDX-License-Identifier: Apache-2.0
"""Export declared interfaces as one object on the bus.

Contract
- Each method call runs as its own task, so a slow call (polkit waits for a password) does not delay another. All calls
  are cancelled when the service closes. Properties and introspection are answered at once, so a user who keeps methods
  busy cannot keep others from reading the status.
- The header of a call decides whether its body is decoded: the method exists, its signature is exact, and the size is
  within the bound of the method for that user and within the limits of concurrent calls (``CallLimits``).
- An ``AgentError`` of a method becomes a D-Bus error with its reason. Any other exception is a bug: the journal gets
  the traceback, the caller only learns that the call failed.
- The name is requested again after each reconnect. If another process owns the name at the start, it is ``Terminal``.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from nodeagent import log
from nodeagent.errors import AgentError, Refused, Terminal
from nodeagent.host.dbus.client import UNDECODABLE, Bus
from nodeagent.host.dbus.codec import a_sv, decode, variant
from nodeagent.host.dbus.connection import UNDECODED
from nodeagent.host.dbus.errors import to_bus
from nodeagent.host.dbus.header import Message
from nodeagent.host.dbus.interface import (
    INTROSPECTABLE,
    MAX_CALL,
    PEER,
    PROPERTIES,
    Interface,
    Method,
)
from nodeagent.host.dbus.introspection import document
from nodeagent.host.dbus.signals import BUS_NAME, Match
from nodeagent.reasons import Reason, hint

MAX_CALLS: Final = 64

# Slots of ``MAX_CALLS`` that only root can take.
MAX_RESERVED: Final = 16

# Slots of one user other than root.
MAX_OF_USER: Final = 16

MAX_OF_CONNECTION: Final = 8

MAX_UNIDENTIFIED: Final = 2 * 256 * MAX_OF_CONNECTION

# More than the bus queues for one connection (127 MiB), so large calls of other users leave room for one of root.
MAX_BYTES_UNIDENTIFIED: Final = 192 << 20

# Bytes of the identified calls. Other users than root cannot reach half of it: ``Method.max_size`` is small.
MAX_BYTES: Final = 256 << 20

# Elements of the arguments of one call.
MAX_ELEMENTS = 200

# Bytes of a call to read a property, which carries two names.
MAX_PROPERTY_CALL = 4 << 10

# RequestName flag.
_DO_NOT_QUEUE = 4
# RequestName replies.
_PRIMARY_OWNER, _ALREADY_OWNER = 1, 4

# Seconds before the name is requested again, doubled up to _LAST_PAUSE, with jitter.
_FIRST_PAUSE = 0.5
_LAST_PAUSE = 30.0


class TooManyCalls(Exception):
    """No slot is free for this call."""


@dataclass(eq=False, slots=True)
class CallSlot:
    """A place of one call. ``uid`` is None until the caller is identified."""

    connection: str
    size: int
    uid: int | None = None


class CallLimits:
    """Limits on concurrent calls: root always finds a free slot, and the memory in use is bounded.

    A call counts for the user of its caller. Until the bus has identified the user, the call takes one of the
    unidentified slots. These are cheap, and more than one user can fill with all connections that the system bus allows
    (256).

    Hands out slots: ``take`` one, ``identify`` the caller if it was unknown, and always ``leave`` the slot.

    ``take`` and ``identify`` raise ``TooManyCalls``.
    """

    def __init__(self) -> None:
        self._of_connection: Counter[str] = Counter()
        self._of_user: Counter[int] = Counter()
        self._unidentified = 0
        self._bytes_unidentified = 0
        self._bytes = 0

    def take(self, connection: str, size: int, uid: int | None) -> CallSlot:
        if self._of_connection[connection] >= MAX_OF_CONNECTION:
            raise TooManyCalls("too many concurrent calls over one connection")
        slot = CallSlot(connection, size)
        if uid is not None:
            self._begin(slot, uid)
        elif self._unidentified >= MAX_UNIDENTIFIED or self._bytes_unidentified + size > MAX_BYTES_UNIDENTIFIED:
            raise TooManyCalls("too many concurrent calls")
        else:
            self._unidentified += 1
            self._bytes_unidentified += size
        self._of_connection[connection] += 1
        return slot

    def identify(self, slot: CallSlot, uid: int) -> None:
        self._begin(slot, uid)
        self._unidentified -= 1
        self._bytes_unidentified -= slot.size

    def leave(self, slot: CallSlot) -> None:
        if slot.uid is None:
            self._unidentified -= 1
            self._bytes_unidentified -= slot.size
        else:
            self._of_user[slot.uid] -= 1
            self._bytes -= slot.size
        self._of_connection[slot.connection] -= 1
        if not self._of_connection[slot.connection]:
            del self._of_connection[slot.connection]

    def _begin(self, slot: CallSlot, uid: int) -> None:
        every = self._of_user.total()
        others = every - self._of_user[0]
        if uid != 0 and (self._of_user[uid] >= MAX_OF_USER or others >= MAX_CALLS - MAX_RESERVED):
            raise TooManyCalls("too many concurrent calls of users other than root")
        if every >= MAX_CALLS or self._bytes + slot.size > MAX_BYTES:
            raise TooManyCalls("too many concurrent calls")
        self._of_user[uid] += 1
        self._bytes += slot.size
        slot.uid = uid


class _Fault(Exception):
    """An error with a name of the D-Bus specification, for invalid calls."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = f"org.freedesktop.DBus.Error.{name}"


class Exporter:
    """Owns the bus name inside ``async with``. Raises ``Terminal`` if another process owns it."""

    def __init__(self, bus: Bus, name: str, path: str, interfaces: Sequence[Interface]) -> None:
        self._bus = bus
        self._name = name
        self._path = path
        self._interfaces = {interface.name: interface for interface in interfaces}
        self._limits = CallLimits()
        self._calls: dict[asyncio.Task[None], CallSlot] = {}
        self._documents: dict[str, str] = {}
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        # The handlers come before the name: calls arrive as soon as it is owned.
        self._bus.serve(self._admit, self._on_call)
        owned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep_name(owned), name=f"own {self._name}")
        try:
            await owned
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    def changed(self, interface: str, *names: str) -> None:
        """Emit ``PropertiesChanged`` with the current values of properties."""
        declared = self._interfaces[interface].properties
        values = {name: (declared[name].signature, declared[name].get()) for name in names}
        body: Sequence[Any] = (interface, a_sv(values), [])
        self._bus.emit(self._path, PROPERTIES, "PropertiesChanged", "sa{sv}as", body)

    def emit(self, interface: str, name: str, *values: Any) -> None:
        """Emit a declared signal."""
        signal = self._interfaces[interface].signals[name]
        self._bus.emit(self._path, interface, name, signal.signature, values)

    async def _close(self) -> None:
        # A call that arrives from here on gets an error, not a timeout.
        self._bus.serve(None, None)
        tasks = [task for task in (self._keeper, *self._calls) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- the name -------------------------------------------------------------------------------------------------

    async def _keep_name(self, owned: asyncio.Future[None]) -> None:
        """Own the name until cancelled. ``owned`` gets the first result; later failures are retried."""
        pause = _FIRST_PAUSE
        while True:
            try:
                # The subscription comes before the request, or a name that is lost right after the answer would go
                # unnoticed.
                async with self._bus.signals(Match(BUS_NAME, "NameLost", sender=BUS_NAME, arg0=self._name)) as lost:
                    (answer,) = await self._bus.call_bus("RequestName", "su", (self._name, _DO_NOT_QUEUE))
                    if answer not in (_PRIMARY_OWNER, _ALREADY_OWNER):
                        raise Terminal(f"{self._name} has another owner on the bus", reason=Reason.ALREADY_RUNNING)
                    if not owned.done():
                        owned.set_result(None)
                    pause = _FIRST_PAUSE
                    await lost.next()
            except AgentError as error:
                if not owned.done():
                    owned.set_exception(error)
                    return
                log.get(__name__).warning(f"lost the bus name: {error}", reason=error.reason)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
            pause = min(pause * 2, _LAST_PAUSE)

    # -- calls ----------------------------------------------------------------------------------------------------

    def _admit(self, call: Message) -> int:
        """For the header of a call. Answers what is refused."""
        try:
            self._check(call)
        except _Fault as fault:
            self._refuse(call, fault)
            return 0
        except AgentError as error:
            self._fail(call, error)
            return 0
        # Decoding a large text takes time, and the call may be refused once its caller is known.
        caller_known = self._bus.known_uid(call.sender) is not None
        return MAX_ELEMENTS if caller_known or call.size <= MAX_CALL else UNDECODED

    def _check(self, call: Message) -> None:
        member = (call.interface, call.member, call.signature)
        if member in ((PEER, "Ping", ""), (INTROSPECTABLE, "Introspect", "")):
            return
        if call.path != self._path:
            raise _Fault("UnknownObject", f"no object at {call.path}")
        if call.interface == PROPERTIES:
            if member == (PROPERTIES, "Set", "ssv"):
                raise _Fault("PropertyReadOnly", "all properties can only be read")
            if member not in ((PROPERTIES, "Get", "ss"), (PROPERTIES, "GetAll", "s")):
                raise _Fault("UnknownMethod", f"no method {call.member} ({call.signature}) in {PROPERTIES}")
            if call.size > MAX_PROPERTY_CALL:
                raise _Fault("LimitsExceeded", f"a call of {call.size} bytes, more than {MAX_PROPERTY_CALL}")
            return
        method = self._interface(call.interface).methods.get(call.member)
        if method is None:
            raise _Fault("UnknownMethod", f"no method {call.member} in {call.interface}")
        if call.signature != method.takes:
            raise _Fault("InvalidArgs", f"{call.member} takes ({method.takes}), not ({call.signature})")
        _check_size(method, call.size, self._bus.known_uid(call.sender))

    def _on_call(self, call: Message) -> None:
        try:
            if (answer := self._standard(call)) is None:
                self._start(call)
            else:
                self._bus.reply(call, *answer)
        except _Fault as fault:
            self._refuse(call, fault)
        except Exception:  # noqa: BLE001 - a property's getter, or a value that does not fit its signature
            self._failed(call)

    def _standard(self, call: Message) -> tuple[str, Sequence[Any]] | None:
        """Return the answer of a standard interface; None for a declared method."""
        match call.interface, call.member:
            case (interface, "Ping") if interface == PEER:
                return "", ()
            case (interface, "Introspect") if interface == INTROSPECTABLE:
                return "s", (self._document(call.path),)
            case (interface, "Get") if interface == PROPERTIES:
                prop = self._interface(call.body[0]).properties.get(call.body[1])
                if prop is None:
                    raise _Fault("UnknownProperty", f"{call.body[0]} has no property {call.body[1]}")
                return "v", (variant(prop.signature, prop.get()),)
            case (interface, "GetAll") if interface == PROPERTIES:
                properties = self._interface(call.body[0]).properties
                return "a{sv}", (a_sv({name: (prop.signature, prop.get()) for name, prop in properties.items()}),)
        return None

    def _document(self, path: str) -> str:
        """Return the introspection, cached: making it takes a millisecond, and any user may request it."""
        if not f"{self._path}/".startswith(path.rstrip("/") + "/"):
            # A node with nothing in it, as all others are.
            path = "/-"
        if path not in self._documents:
            self._documents[path] = document(path, self._path, tuple(self._interfaces.values()))
        return self._documents[path]

    def _interface(self, name: str) -> Interface:
        if name not in self._interfaces:
            raise _Fault("UnknownInterface", f"no interface {name} at {self._path}")
        return self._interfaces[name]

    def _start(self, call: Message) -> None:
        method = self._interface(call.interface).methods[call.member]
        try:
            slot = self._limits.take(call.sender, call.size, self._bus.known_uid(call.sender))
        except TooManyCalls as error:
            raise _Fault("LimitsExceeded", str(error)) from None
        task = asyncio.create_task(self._run(method, call, slot), name=f"{call.member} for {call.sender}")
        self._calls[task] = slot
        # A task that is cancelled before its first step runs no finally clause, so the callback frees the slot.
        task.add_done_callback(lambda task: self._limits.leave(self._calls.pop(task)))

    async def _run(self, method: Method, call: Message, slot: CallSlot) -> None:
        try:
            # The user of a first call is not known at its arrival, because that takes a call to the bus.
            if slot.uid is None:
                self._limits.identify(slot, await self._bus.uid_of(call.sender))
                _check_size(method, call.size, slot.uid)
            # A large body is decoded only here, after it is known whether its sender may send one.
            if call.raw:
                call = _decoded(call)
            self._bus.reply(call, method.gives, await method.run(replace(call, uid=slot.uid)))
        except TooManyCalls as error:
            self._refuse(call, _Fault("LimitsExceeded", str(error)))
        except _Fault as fault:
            self._refuse(call, fault)
        except AgentError as error:
            self._fail(call, error)
        except Exception:  # noqa: BLE001 - without a reply the caller would wait until its timeout
            self._failed(call)

    def _refuse(self, call: Message, fault: _Fault) -> None:
        self._bus.reply(call, "s", (str(fault),), error_name=fault.name)

    def _failed(self, call: Message) -> None:
        log.get(__name__).exception(f"{call.interface}.{call.member} failed")
        error = AgentError(f"{call.member} failed inside the daemon", hint="the journal has the details")
        self._fail(call, error)

    def _fail(self, call: Message, error: AgentError) -> None:
        name, body = to_bus(error)
        self._bus.reply(call, "ss", body, error_name=name)


def _decoded(call: Message) -> Message:
    try:
        return decode(call.raw, MAX_ELEMENTS)
    except Exception:  # noqa: BLE001 - any error of dbus-next
        raise _Fault("InvalidArgs", UNDECODABLE) from None


def _check_size(method: Method, size: int, uid: int | None) -> None:
    """Raise ``Refused`` if the call is too large. An unidentified caller may be root."""
    largest = method.max_size_for_root if uid in (None, 0) else method.max_size
    if size > largest:
        whose = "" if uid in (None, 0) else " for users other than root"
        message = f"the call has {size} bytes, and the limit{whose} is {largest}"
        raise Refused(message, reason=Reason.CALL_TOO_LARGE, hint=hint(Reason.CALL_TOO_LARGE))
