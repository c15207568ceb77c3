"""Our own service on the bus: declared interfaces, exported at one object.

Each call runs as a task of its own, so a slow one (polkit asking for a password) never holds up another. An
``AgentError`` becomes a D-Bus error with its reason; anything else is a bug, logged here and told without its text.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from xml.sax.saxutils import quoteattr

from nodeagent import log
from nodeagent.errors import AgentError, Terminal
from nodeagent.host.bus import Bus
from nodeagent.host.bus_codec import Message, check_signature, variant
from nodeagent.host.bus_errors import to_bus
from nodeagent.host.bus_match import BUS_NAME, Match

__all__ = ["Exporter", "Interface", "Method", "Property"]

_PROPERTIES = "org.freedesktop.DBus.Properties"
_INTROSPECTABLE = "org.freedesktop.DBus.Introspectable"
_PEER = "org.freedesktop.DBus.Peer"

_DO_NOT_QUEUE = 4  # RequestName flag
_PRIMARY_OWNER, _ALREADY_OWNER = 1, 4  # RequestName replies

MAX_CALLS = 64
"""Calls under way at once; more are refused, so that nobody fills the memory of a root process with questions."""

LOOK_AGAIN = 1.0
"""Seconds between losing the bus and asking for the name again."""


@dataclass(frozen=True, slots=True)
class Method:
    """``run`` gets the message (for its sender) and returns the values of ``gives``."""

    run: Callable[[Message], Awaitable[Sequence[Any]]]
    takes: str = ""
    gives: str = ""
    arguments: Sequence[str] = ()  # names of what it takes and gives, in that order


@dataclass(frozen=True, slots=True)
class Property:
    signature: str
    get: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Interface:
    name: str
    methods: Mapping[str, Method] = field(default_factory=dict)
    properties: Mapping[str, Property] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for method in self.methods.values():
            check_signature(method.takes + method.gives)


class Exporter:
    """``async with`` it: the name is ours inside. Raises ``Terminal`` if another process has it."""

    def __init__(self, bus: Bus, name: str, path: str, interfaces: Sequence[Interface]) -> None:
        self._bus = bus
        self._name = name
        self._path = path
        self._interfaces = {interface.name: interface for interface in interfaces}
        self._calls: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._bus.serve(self._on_call)
        await self._request_name()
        self._keeper = asyncio.create_task(self._keep_name())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bus.serve(None)
        tasks = [task for task in (self._keeper, *self._calls) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def changed(self, interface: str, name: str) -> None:
        """Tells everybody the new value of a property."""
        prop = self._interfaces[interface].properties[name]
        body: Sequence[Any] = (interface, {name: variant(prop.signature, prop.get())}, [])
        self._bus.emit(self._path, _PROPERTIES, "PropertiesChanged", "sa{sv}as", body)

    async def _request_name(self) -> None:
        (answer,) = await self._bus.call_bus("RequestName", "su", (self._name, _DO_NOT_QUEUE))
        if answer not in (_PRIMARY_OWNER, _ALREADY_OWNER):
            raise Terminal(f"{self._name} has another owner on the bus", reason="AlreadyRunning")

    async def _keep_name(self) -> None:
        """A bus daemon that was restarted forgot us: connect again, ask for the name again."""
        while True:
            try:
                async with self._bus.signals(Match(BUS_NAME, "NameLost", sender=BUS_NAME, arg0=self._name)) as lost:
                    await self._request_name()
                    await lost.next()  # raises when the connection is gone
            except AgentError as error:
                log.get(__name__).warning(f"off the bus: {error}", reason=error.reason)
            await asyncio.sleep(LOOK_AGAIN)

    # Calls

    def _on_call(self, message: Message) -> None:
        if len(self._calls) >= MAX_CALLS:
            self._refuse(message, "LimitsExceeded", f"more than {MAX_CALLS} calls at once")
            return
        task = asyncio.create_task(self._answer(message))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    def _refuse(self, message: Message, name: str, text: str) -> None:
        self._bus.reply(message, "s", (text,), error_name=f"org.freedesktop.DBus.Error.{name}")

    async def _answer(self, message: Message) -> None:
        try:
            if (found := self._find(message)) is None:
                return
            self._bus.reply(message, found.gives, await found.run(message))
        except AgentError as error:
            name, body = to_bus(error)
            self._bus.reply(message, "ss", body, error_name=name)
        except Exception:  # noqa: BLE001 - the last stop before the caller would wait for ever
            log.get(__name__).exception(f"{message.member} failed")
            self._refuse(message, "Failed", "internal error; see the journal")

    def _find(self, message: Message) -> Method | None:
        if message.interface == _PEER:
            methods: Mapping[str, Method] = {"Ping": Method(_nothing)}
        elif message.path != self._path and message.interface != _INTROSPECTABLE:
            self._refuse(message, "UnknownObject", f"no object at {message.path}")
            return None
        elif message.interface == _INTROSPECTABLE:
            methods = {"Introspect": Method(self._introspect, "", "s")}
        elif message.interface == _PROPERTIES:
            methods = {
                "Get": Method(self._get, "ss", "v"),
                "GetAll": Method(self._get_all, "s", "a{sv}"),
                "Set": Method(_read_only, "ssv"),
            }
        elif message.interface in self._interfaces:
            methods = self._interfaces[message.interface].methods
        else:
            self._refuse(message, "UnknownInterface", f"no interface {message.interface}")
            return None
        method = methods.get(message.member)
        if method is None:
            self._refuse(message, "UnknownMethod", f"no method {message.member}")
        elif method.takes != message.signature:
            self._refuse(message, "InvalidArgs", f"{message.member} takes ({method.takes}), not ({message.signature})")
        else:
            return method
        return None

    def _interface(self, name: str) -> Interface:
        with contextlib.suppress(KeyError):
            return self._interfaces[name]
        raise Terminal(f"no interface {name}", reason="UnknownInterface")

    async def _get(self, message: Message) -> Sequence[Any]:
        interface, name = message.body
        prop = self._interface(interface).properties.get(name)
        if prop is None:
            raise Terminal(f"no property {name}", reason="UnknownProperty")
        return (variant(prop.signature, prop.get()),)

    async def _get_all(self, message: Message) -> Sequence[Any]:
        properties = self._interface(message.body[0]).properties
        return ({name: variant(prop.signature, prop.get()) for name, prop in properties.items()},)

    async def _introspect(self, message: Message) -> Sequence[Any]:
        if message.path == self._path:
            inside = "".join(_interface_xml(interface) for interface in self._interfaces.values())
        elif self._path.startswith(message.path.rstrip("/") + "/"):
            child = self._path[len(message.path.rstrip("/")) + 1 :].split("/")[0]
            inside = f"<node name={quoteattr(child)}/>"
        else:
            inside = ""
        return (f"<node>{inside}</node>",)


async def _nothing(_message: Message) -> Sequence[Any]:
    return ()


async def _read_only(_message: Message) -> Sequence[Any]:
    raise Terminal("all properties are read-only", reason="PropertyReadOnly")


def _interface_xml(interface: Interface) -> str:
    methods = "".join(_method_xml(name, method) for name, method in interface.methods.items())
    properties = "".join(
        f'<property name={quoteattr(name)} type={quoteattr(prop.signature)} access="read"/>'
        for name, prop in interface.properties.items()
    )
    return f"<interface name={quoteattr(interface.name)}>{methods}{properties}</interface>"


def _method_xml(name: str, method: Method) -> str:
    kinds = [("in", kind) for kind in _split(method.takes)] + [("out", kind) for kind in _split(method.gives)]
    names = [*method.arguments, *("" for _ in kinds)]
    arguments = "".join(
        f"<arg{f' name={quoteattr(called)}' if called else ''} type={quoteattr(kind)} direction={quoteattr(way)}/>"
        for (way, kind), called in zip(kinds, names, strict=False)
    )
    return f"<method name={quoteattr(name)}>{arguments}</method>"


def _split(signature: str) -> list[str]:
    """Complete types of a signature."""
    out, start, depth = [], 0, 0
    for index, character in enumerate(signature):
        depth += (character in "({") - (character in ")}")
        if depth == 0 and character != "a":
            out.append(signature[start : index + 1])
            start = index + 1
    return out
