"""The bodies of D-Bus messages as bytes and back. The only module that knows dbus-next.

We take dbus-next's marshalling, which is sound and pinned, and none of its connections: those connect in a blocking
constructor, spin for ever when a server closes during authentication, drop handlers silently, and leak descriptors.
``bus_connection`` does that part.

Decoding costs a few microseconds for each element of a body, on the event loop, and an element may be one byte: 1 MB of
an array of variants takes a second. So a body is decoded up to a number of elements, and only after its header was
found worth it (``bus_header``).

Variants are plain values once decoded: their signature interests nobody on this side. To send one, say ``variant``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from typing import Any, Final

from nodeagent._partial_import import without_init
from nodeagent.host.dbus.header import HEADER_SIZE, Kind, Message, frame_size, header_size, read_header

with without_init("dbus_next"):
    import dbus_next.errors  # noqa: F401 - its modules import each other; begun here, that works out
    from dbus_next._private.unmarshaller import Unmarshaller
    from dbus_next.constants import MessageFlag, MessageType
    from dbus_next.message import Message as _Message
    from dbus_next.signature import SignatureTree, Variant

__all__ = [
    "HEADER_SIZE",
    "MAX_ELEMENTS",
    "Kind",
    "Message",
    "a_sv",
    "complete_types",
    "decode",
    "encode",
    "frame_size",
    "variant",
]

MAX_ELEMENTS: Final = 100_000
"""Of one body, from a service that was called or whose signals were requested: a large answer has some thousands."""

MAX_DEPTH: Final = 64
"""Of variants in each other: what the D-Bus specification allows in all."""

_SIGNATURES = 1024  # dbus-next keeps every signature that anybody on the bus ever sent us; we forget them at this many


def variant(signature: str, value: Any) -> Any:
    return Variant(signature, value)


def a_sv(values: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """The ``a{sv}`` of so many interfaces: ``a_sv({"name": ("s", ":1.7")})``."""
    return {key: Variant(signature, value) for key, (signature, value) in values.items()}


def complete_types(signature: str) -> list[str]:
    """``sa{sv}`` is ``s`` and ``a{sv}``. Raises an exception if it is no signature; so for our own declarations, not
    for input."""
    return [kind.signature for kind in SignatureTree(signature).types]


def encode(message: Message, serial: int) -> bytes:
    """Raises dbus-next's errors for a body that does not fit its signature: a bug of the caller, not of the input."""
    flags = (MessageFlag.NO_REPLY_EXPECTED if message.no_reply else MessageFlag.NONE) | (
        MessageFlag.ALLOW_INTERACTIVE_AUTHORIZATION if message.interactive else MessageFlag.NONE
    )
    raw: Any = _Message(
        destination=message.destination or None,  # type: ignore[arg-type]
        path=message.path or None,  # type: ignore[arg-type]
        interface=message.interface or None,  # type: ignore[arg-type]
        member=message.member or None,  # type: ignore[arg-type]
        message_type=MessageType(message.kind),
        flags=flags,
        error_name=message.error_name or None,  # type: ignore[arg-type]
        reply_serial=message.reply_serial or None,  # type: ignore[arg-type]
        signature=message.signature,
        body=list(message.body),
        serial=serial,
    )
    return bytes(raw._marshall())


class _Bounded(Unmarshaller):
    """Of a body alone: it starts at a multiple of 8 in its message, so the alignment is the same."""

    def __init__(self, body: bytes, endian: int, elements: int) -> None:
        super().__init__(BytesIO())  # type: ignore[no-untyped-call]
        self.buf = body  # type: ignore[assignment]
        self.endian = endian
        self.left = elements
        self.depth = 0

    def read_argument(self, type_: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ValueError("too many elements")
        return self.readers[type_.token](type_)  # type: ignore[no-untyped-call]

    def read_variant(self, _type: Any = None) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError("too deep")
        value = super().read_variant()  # type: ignore[no-untyped-call]
        self.depth -= 1
        return value


def decode(data: bytes, elements: int = MAX_ELEMENTS) -> Message:
    """One whole message. ``ValueError``, or an exception of dbus-next, for one that breaks the format or the bound."""
    message = read_header(data)
    if message.size != len(data):
        raise ValueError("message is not as long as its header says")
    if message.kind is Kind.OTHER:
        raise ValueError("message of an unknown type")
    if len(SignatureTree._cache) > _SIGNATURES:
        SignatureTree._cache.clear()
    start = header_size(data)
    if start == len(data):
        return message
    reader = _Bounded(data[start:], data[0], elements)
    body = [reader.read_argument(kind) for kind in SignatureTree._get(message.signature).types]
    return replace(message, body=tuple(_plain(value) for value in body))


def _plain(value: Any) -> Any:
    if isinstance(value, Variant):
        return _plain(value.value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
