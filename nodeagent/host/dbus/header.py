# SPDX-License-Identifier: Apache-2.0
"""The frame and the header fields of a D-Bus message, without its body.

The cost of ``read_header`` does not depend on the body, and hardly on the header fields, so it is safe for messages of
any user. ``connection`` decides with it which bodies ``codec`` decodes.
The format is that of the D-Bus specification, section "Message Format".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

# Bytes of the fixed part of a header, from which the size of the whole message follows.
HEADER_SIZE: Final = 16

# Header fields that are accepted. The specification defines nine.
MAX_FIELDS: Final = 32

# Bytes of one header field. Names have at most 255 bytes. A longer value reads as "" and matches no object.
MAX_TEXT: Final = 4096

_STRING, _PATH, _SIGNATURE, _UINT = b"s", b"o", b"g", b"u"
# Code: attribute, type.
_FIELDS: Final = {
    1: ("path", _PATH),
    2: ("interface", _STRING),
    3: ("member", _STRING),
    4: ("error_name", _STRING),
    5: ("reply_serial", _UINT),
    6: ("destination", _STRING),
    7: ("sender", _STRING),
    8: ("signature", _SIGNATURE),
    9: ("fd_count", _UINT),
}
_SIZES: Final = {b"y": 1, b"b": 4, b"n": 2, b"q": 2, b"i": 4, b"u": 4, b"h": 4, b"x": 8, b"t": 8, b"d": 8}
# Header flags.
_NO_REPLY, _INTERACTIVE = 0x1, 0x4


class MessageKind(IntEnum):
    # A message type that this version of the protocol does not define.
    OTHER = 0
    CALL = 1
    RETURN = 2
    ERROR = 3
    SIGNAL = 4


_KINDS: Final = {kind.value: kind for kind in MessageKind}


@dataclass(frozen=True, slots=True)
class Message:
    """A message. ``body`` holds plain values. ``fds`` are open descriptors; the receiver closes them."""

    kind: MessageKind
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
    # The user of the caller may be asked for a password.
    interactive: bool = False
    fd_count: int = 0
    fds: tuple[int, ...] = ()
    # In bytes, as received.
    size: int = 0
    # The user of the sender, if known.
    uid: int | None = None
    # The whole message, if its body is not decoded yet.
    raw: bytes = b""


def frame_size(head: bytes | bytearray) -> int:
    """Return the size of the message that starts with these 16 bytes. Raises ``ValueError`` if they start none."""
    body: int
    (body,) = struct.unpack_from(f"{byte_order(head)}I", head, 4)
    return header_size(head) + body


def header_size(head: bytes | bytearray) -> int:
    """Return the size of the header with its fields and the padding before the body."""
    fields: int
    (fields,) = struct.unpack_from(f"{byte_order(head)}I", head, 12)
    return HEADER_SIZE + (fields + 7) // 8 * 8


def byte_order(head: bytes | bytearray) -> str:
    """Return the byte order as ``struct`` writes it."""
    if head[0] not in b"lB" or head[3] != 1:
        raise ValueError("not a D-Bus message")
    return "<" if head[0] == ord("l") else ">"


def read_header(data: bytes | bytearray) -> Message:
    """Return the message without its body. ``data`` holds at least the header.

    Raises ``ValueError`` if the header breaks the format.
    """
    order = byte_order(data)
    end = HEADER_SIZE + struct.unpack_from(f"{order}I", data, 12)[0]
    number = struct.Struct(f"{order}I")
    fields: dict[str, Any] = {}
    at = HEADER_SIZE
    for _ in range(MAX_FIELDS):
        if at >= end:
            break
        # A struct of a byte and a variant, aligned to 8. The variant's signature is one letter, so its value is at 4.
        code, kind = data[at], bytes(data[at + 2 : at + 3])
        if data[at + 1] != 1:
            raise ValueError("a header field of a compound type")
        name, expected = _FIELDS.get(code, ("", kind))
        if kind != expected:
            raise ValueError(f"header field {code} of type {kind!r}")
        at += 4
        if kind in (_STRING, _PATH):
            size, at = number.unpack_from(data, at)[0], at + 4
            value: Any = _text(data, at, size, end)
            at += size + 1
        elif kind == _SIGNATURE:
            size, at = data[at], at + 1
            value = _text(data, at, size, end)
            at += size + 1
        elif kind in _SIZES:
            value = number.unpack_from(data, at)[0]
            at = (at + _SIZES[kind] - 1) // _SIZES[kind] * _SIZES[kind] + _SIZES[kind]
        else:
            raise ValueError(f"header field {code} of type {kind!r}")
        if at > end:
            raise ValueError("a header field that is longer than the header")
        if name:
            fields[name] = value
        at = (at + 7) // 8 * 8
    else:
        raise ValueError("too many header fields")
    flags = data[2]
    return Message(
        kind=_KINDS.get(data[1], MessageKind.OTHER),
        serial=number.unpack_from(data, 8)[0],
        no_reply=bool(flags & _NO_REPLY),
        interactive=bool(flags & _INTERACTIVE),
        size=frame_size(data),
        **fields,
    )


def _text(data: bytes | bytearray, at: int, size: int, end: int) -> str:
    if at + size >= end:
        raise ValueError("a header field that is longer than the header")
    return data[at : at + size].decode() if size <= MAX_TEXT else ""
