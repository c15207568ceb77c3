"""D-Bus messages as bytes and back. The only module that knows dbus-next.

We take dbus-next's marshalling, which is sound and pinned, and none of its connections: those connect in a blocking
constructor, spin for ever when a server closes during authentication, drop handlers silently, and leak descriptors.
``bus_connection`` does that part.

Variants are plain values once decoded: their signature interests nobody on this side. To send one, say ``variant``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from io import BytesIO
from typing import Any

from nodeagent.lean import without_init

with without_init("dbus_next"):
    import dbus_next.errors  # noqa: F401 - its modules import each other; begun here, that works out
    from dbus_next._private.unmarshaller import Unmarshaller
    from dbus_next.constants import MessageFlag, MessageType
    from dbus_next.message import Message as _Message
    from dbus_next.signature import SignatureTree, Variant

__all__ = ["HEADER_SIZE", "Kind", "Message", "a_sv", "complete_types", "decode", "encode", "frame_size", "variant"]

HEADER_SIZE = 16
"""Bytes of the fixed part of a header, from which the size of the whole message follows."""

_UNIX_FDS = 9  # header field: how many descriptors belong to this message
_SIGNATURES = 1024  # dbus-next keeps every signature that anybody on the bus ever sent us; we forget them at this many


class Kind(IntEnum):
    CALL = 1
    RETURN = 2
    ERROR = 3
    SIGNAL = 4


@dataclass(frozen=True, slots=True)
class Message:
    """``body`` holds plain values; ``fds`` are open descriptors that whoever takes the message has to close."""

    kind: Kind
    path: str = ""
    interface: str = ""
    member: str = ""
    destination: str = ""
    sender: str = ""
    error_name: str = ""
    signature: str = ""
    body: Sequence[Any] = ()
    serial: int = 0
    reply_serial: int = 0
    no_reply: bool = False
    interactive: bool = False  # the caller's user may be asked for a password
    fd_count: int = 0
    fds: tuple[int, ...] = ()
    size: int = 0  # in bytes, as received


def variant(signature: str, value: Any) -> Any:
    return Variant(signature, value)


def a_sv(values: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """The ``a{sv}`` of so many interfaces: ``a_sv({"name": ("s", ":1.7")})``."""
    return {key: Variant(signature, value) for key, (signature, value) in values.items()}


def complete_types(signature: str) -> list[str]:
    """``sa{sv}`` is ``s`` and ``a{sv}``. Raises an exception if it is no signature; so for our own declarations, not
    for input."""
    return [kind.signature for kind in SignatureTree(signature).types]


def frame_size(head: bytes | bytearray) -> int:
    """Size of the message that starts with these 16 bytes. ``ValueError`` if they start none."""
    if head[0] not in b"lB" or head[3] != 1:
        raise ValueError("not a D-Bus message")
    order = "<" if head[0] == ord("l") else ">"
    body, _serial, fields = struct.unpack_from(f"{order}III", head, 4)
    return int(HEADER_SIZE + (fields + 7) // 8 * 8 + body)


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


def decode(data: bytes, *, with_fds: bool = False) -> Message:
    """One whole message. ``with_fds``: descriptors came in, so it matters how many of them are this message's."""
    if len(SignatureTree._cache) > _SIGNATURES:
        SignatureTree._cache.clear()
    reader: Any = Unmarshaller(BytesIO(data))  # type: ignore[no-untyped-call]
    raw = reader.unmarshall()
    if raw is None:
        raise ValueError("message is shorter than its header says")
    fd_count = 0
    if with_fds:
        reader.offset = HEADER_SIZE - 4
        fields = reader.read_argument(SignatureTree._get("a(yv)").types[0])
        fd_count = next((value.value for code, value in fields if code == _UNIX_FDS), 0)
    return Message(
        kind=Kind(raw.message_type.value),
        path=raw.path or "",
        interface=raw.interface or "",
        member=raw.member or "",
        destination=raw.destination or "",
        sender=raw.sender or "",
        error_name=raw.error_name or "",
        signature=raw.signature,
        body=tuple(_plain(value) for value in raw.body),
        serial=raw.serial,
        reply_serial=raw.reply_serial or 0,
        no_reply=bool(raw.flags & MessageFlag.NO_REPLY_EXPECTED),
        interactive=bool(raw.flags & MessageFlag.ALLOW_INTERACTIVE_AUTHORIZATION),
        fd_count=fd_count,
        size=len(data),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Variant):
        return _plain(value.value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
