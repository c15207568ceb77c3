# SPDX-License-Identifier: Apache-2.0
"""Encode and decode the bodies of D-Bus messages. The only module that imports dbus-next.

Only the marshalling of dbus-next is used, at a pinned version: its decoder has no bounds, so a subclass of it, which is
private to dbus-next, has them here and nowhere else. Its connections are not: they connect in a blocking
constructor, spin without end if a server closes during authentication, drop handlers silently, and leak descriptors.
``connection`` replaces them.

Decoding takes a few microseconds for each element of a body, on the event loop, and an element may be one byte: 1 MB of
an array of variants takes a second. Therefore a body is decoded up to a number of elements, and only if ``connection``
wants it after reading the header.

Decoded variants are plain values without their signature. ``variant`` makes one to send.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from typing import Any, Final

from dbus_next._private.unmarshaller import Unmarshaller
from dbus_next.constants import MessageFlag, MessageType
from dbus_next.message import Message as _Message
from dbus_next.signature import SignatureTree, Variant

from nodeagent.host.dbus.header import Message, MessageKind, header_size, read_header

# Elements of one body from a service that was called or subscribed to. A large answer has some thousands.
MAX_ELEMENTS: Final = 100_000

# Nesting of variants. The D-Bus specification allows 64 levels in total.
MAX_DEPTH: Final = 64

# Signatures after which dbus-next's cache is cleared. It would keep every signature that any user ever sent.
_SIGNATURES = 1024


def variant(signature: str, value: Any) -> Any:
    """Return a variant to send."""
    return Variant(signature, value)


def a_sv(values: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """Return a value of the type ``a{sv}``: ``a_sv({"name": ("s", ":1.7")})``."""
    return {key: Variant(signature, value) for key, (signature, value) in values.items()}


def complete_types(signature: str) -> list[str]:
    """Split a signature: ``sa{sv}`` is ``s`` and ``a{sv}``.

    Raises an exception of dbus-next for an invalid signature, so it is for declarations, not for input.
    """
    return [kind.signature for kind in SignatureTree(signature).types]


def encode(message: Message, serial: int) -> bytes:
    """Return the message as bytes. A body that does not fit its signature is a bug and raises an error of dbus-next."""
    flags = (MessageFlag.NO_REPLY_EXPECTED if message.no_reply else MessageFlag.NONE) | (
        MessageFlag.ALLOW_INTERACTIVE_AUTHORIZATION if message.interactive else MessageFlag.NONE
    )
    # dbus-next checks each name that is not None, and "" is no valid name.
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
    """Decodes a body alone. A body starts at a multiple of 8 in its message, so the alignment is the same."""

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
    """Decode one whole message.

    Raises ``ValueError`` or an exception of dbus-next if the message breaks the format or the bound.
    """
    message = read_header(data)
    if message.size != len(data):
        raise ValueError("the message does not have the length that its header gives")
    if message.kind is MessageKind.OTHER:
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
