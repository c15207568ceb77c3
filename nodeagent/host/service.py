"""Our own service on the bus: declared interfaces, exported at one object.

Contract
- Each call of a method runs as a task of its own, so a slow one (polkit asking for a password) never holds up another;
  all are canceled when the service closes. Properties and introspection are answered at once: nobody who keeps methods
  busy can keep others from the status.
- An ``AgentError`` of a method becomes a D-Bus error with its reason. Anything else is a bug: the journal gets the
  traceback, the caller learns no more than that.
- The name is asked for again whenever the connection came back. Another owner at the start is ``Terminal``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from nodeagent import log
from nodeagent.errors import AgentError, Terminal
from nodeagent.host.bus import Bus
from nodeagent.host.bus_codec import Message, a_sv, variant
from nodeagent.host.bus_errors import to_bus
from nodeagent.host.bus_match import BUS_NAME, Match
from nodeagent.host.interface import INTROSPECTABLE, PEER, PROPERTIES, Interface, Method, Property, document

__all__ = ["Exporter", "Interface", "Method", "Property"]

MAX_CALLS = 64
"""Calls under way at once; more are refused, so that nobody fills the memory of a root process with questions."""

MAX_CALLS_EACH = 8
"""The same for one caller."""

MAX_CALL = 32 << 20
"""Bytes of one call. The system bus has the same limit, but an admin may have raised that."""

_DO_NOT_QUEUE = 4  # RequestName flag
_PRIMARY_OWNER, _ALREADY_OWNER = 1, 4  # RequestName replies

_FIRST_PAUSE = 0.5  # seconds before the name is asked for again, doubled up to _LAST_PAUSE, and jittered
_LAST_PAUSE = 30.0


class _Fault(Exception):
    """An answer in D-Bus' own words, for calls that are not a method of ours."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = f"org.freedesktop.DBus.Error.{name}"


class Exporter:
    """``async with`` it: the name is ours inside. Raises ``Terminal`` if another process has it."""

    def __init__(self, bus: Bus, name: str, path: str, interfaces: Sequence[Interface]) -> None:
        self._bus = bus
        self._name = name
        self._path = path
        self._interfaces = {interface.name: interface for interface in interfaces}
        self._calls: dict[asyncio.Task[None], str] = {}
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._bus.serve(self._on_call)
        owned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep_name(owned), name=f"own {self._name}")
        try:
            await owned
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._close()

    def changed(self, interface: str, name: str) -> None:
        """Tells everybody the new value of a property."""
        prop = self._interfaces[interface].properties[name]
        body: Sequence[Any] = (interface, a_sv({name: (prop.signature, prop.get())}), [])
        self._bus.emit(self._path, PROPERTIES, "PropertiesChanged", "sa{sv}as", body)

    async def _close(self) -> None:
        self._bus.serve(None)
        tasks = [task for task in (self._keeper, *self._calls) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- the name -------------------------------------------------------------------------------------------------

    async def _keep_name(self, owned: asyncio.Future[None]) -> None:
        """``owned`` gets the first result. After that a failure means that we try again."""
        pause = _FIRST_PAUSE
        while True:
            try:
                async with self._bus.signals(Match(BUS_NAME, "NameLost", sender=BUS_NAME, arg0=self._name)) as lost:
                    await self._request_name()
                    if not owned.done():
                        owned.set_result(None)
                    pause = _FIRST_PAUSE
                    await lost.next()
            except AgentError as error:
                if not owned.done():
                    owned.set_exception(error)
                    return
                log.get(__name__).warning(f"off the bus: {error}", reason=error.reason)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
            pause = min(pause * 2, _LAST_PAUSE)

    async def _request_name(self) -> None:
        (answer,) = await self._bus.call_bus("RequestName", "su", (self._name, _DO_NOT_QUEUE))
        if answer not in (_PRIMARY_OWNER, _ALREADY_OWNER):
            raise Terminal(f"{self._name} has another owner on the bus", reason="AlreadyRunning")

    # -- calls ----------------------------------------------------------------------------------------------------

    def _on_call(self, call: Message) -> None:
        try:
            if (answer := self._standard(call)) is None:
                self._start(call)
            else:
                self._bus.reply(call, *answer)
        except _Fault as fault:
            self._bus.reply(call, "s", (str(fault),), error_name=fault.name)
        except Exception:  # noqa: BLE001 - a property's getter, or a value that does not fit its signature
            self._failed(call)

    def _standard(self, call: Message) -> tuple[str, Sequence[Any]] | None:
        """The answer to what every object can do; None for a method of ours."""
        if (call.interface, call.member, call.signature) == (PEER, "Ping", ""):
            return "", ()
        if (call.interface, call.member, call.signature) == (INTROSPECTABLE, "Introspect", ""):
            return "s", (document(call.path, self._path, tuple(self._interfaces.values())),)
        if call.path != self._path:
            raise _Fault("UnknownObject", f"no object at {call.path}")
        if call.interface != PROPERTIES:
            return None
        if (call.member, call.signature) == ("Get", "ss"):
            prop = self._interface(call.body[0]).properties.get(call.body[1])
            if prop is None:
                raise _Fault("UnknownProperty", f"{call.body[0]} has no property {call.body[1]}")
            return "v", (variant(prop.signature, prop.get()),)
        if (call.member, call.signature) == ("GetAll", "s"):
            properties = self._interface(call.body[0]).properties
            return "a{sv}", (a_sv({name: (prop.signature, prop.get()) for name, prop in properties.items()}),)
        if (call.member, call.signature) == ("Set", "ssv"):
            raise _Fault("PropertyReadOnly", f"{call.body[1]} can only be read")
        raise _Fault("UnknownMethod", f"no method {call.member} ({call.signature}) in {PROPERTIES}")

    def _interface(self, name: str) -> Interface:
        if name not in self._interfaces:
            raise _Fault("UnknownInterface", f"no interface {name} at {self._path}")
        return self._interfaces[name]

    def _start(self, call: Message) -> None:
        method = self._interface(call.interface).methods.get(call.member)
        if method is None:
            raise _Fault("UnknownMethod", f"no method {call.member} in {call.interface}")
        if call.signature != method.takes:
            raise _Fault("InvalidArgs", f"{call.member} takes ({method.takes}), not ({call.signature})")
        if call.size > MAX_CALL:
            raise _Fault("LimitsExceeded", f"a call of {call.size} bytes, more than {MAX_CALL}")
        if len(self._calls) >= MAX_CALLS or list(self._calls.values()).count(call.sender) >= MAX_CALLS_EACH:
            raise _Fault("LimitsExceeded", "too many calls at once")
        task = asyncio.create_task(self._run(method, call), name=f"{call.member} for {call.sender}")
        self._calls[task] = call.sender
        task.add_done_callback(self._calls.pop)

    async def _run(self, method: Method, call: Message) -> None:
        try:
            self._bus.reply(call, method.gives, await method.run(call))
        except AgentError as error:
            name, body = to_bus(error)
            self._bus.reply(call, "ss", body, error_name=name)
        except Exception:  # noqa: BLE001 - the last stop before the caller would wait for ever
            self._failed(call)

    def _failed(self, call: Message) -> None:
        log.get(__name__).exception(f"{call.interface}.{call.member} failed")
        name, body = to_bus(AgentError(f"{call.member} failed inside the daemon", hint="the journal has the details"))
        self._bus.reply(call, "ss", body, error_name=name)
