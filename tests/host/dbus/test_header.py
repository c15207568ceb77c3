# SPDX-License-Identifier: Apache-2.0
"""Headers of messages, which are read before any body."""

from __future__ import annotations

import struct

import pytest

from nodeagent.host.dbus.header import MAX_FIELDS, MessageKind, byte_order, frame_size, header_size, read_header

# Of an unknown code, a number: its code, its signature, and its value.
FIELD = struct.pack("<BB2sI", 200, 1, b"u\0", 7)
PATH = struct.pack("<BB2sI", 1, 1, b"o\0", 2) + b"/a\0" + bytes(5)


def message(*fields: bytes, order: str = "<", kind: int = 1, version: int = 1, flags: int = 0) -> bytes:
    letter = b"l" if order == "<" else b"B"
    array = b"".join(fields)
    return struct.pack(f"{order}cBBBIII", letter, kind, flags, version, 0, 5, len(array)) + array


def test_a_header() -> None:
    read = read_header(message(PATH, FIELD))
    assert (read.kind, read.path, read.serial, read.no_reply, read.interactive) == (
        MessageKind.CALL,
        "/a",
        5,
        False,
        False,
    )
    assert read_header(message(flags=1)).no_reply
    assert read_header(message(flags=4)).interactive
    assert read_header(message(kind=9)).kind is MessageKind.OTHER


def test_the_number_of_fields_is_bounded() -> None:
    assert read_header(message(PATH, *[FIELD] * (MAX_FIELDS - 2))).path == "/a"
    with pytest.raises(ValueError, match="too many header fields"):
        read_header(message(*[FIELD] * (MAX_FIELDS + 1)))


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        (struct.pack("<BB2sI", 1, 2, b"u\0", 7), "compound type"),
        (struct.pack("<BB2sI", 1, 1, b"u\0", 7), "header field 1 of type"),
        (struct.pack("<BB2sI", 200, 1, b"v\0", 7), "header field 200 of type"),
        (struct.pack("<BB2sI", 200, 1, b"t\0", 7), "longer than the header"),
    ],
)
def test_a_field_of_another_form(field: bytes, problem: str) -> None:
    # Behind the header is the body, whose bytes are none of a field.
    with pytest.raises(ValueError, match=problem):
        read_header(message(field) + bytes(16))


@pytest.mark.parametrize(("order", "size"), [("<", 24), (">", 24)])
def test_the_order_of_the_bytes(order: str, size: int) -> None:
    data = message(bytes(8), order=order)
    assert (byte_order(data), header_size(data), frame_size(data)) == (order, size, size)


@pytest.mark.parametrize("data", [b"x" + message()[1:], message(version=2)])
def test_no_message(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a D-Bus message"):
        byte_order(data)
