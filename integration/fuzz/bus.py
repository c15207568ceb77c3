# SPDX-License-Identifier: Apache-2.0
"""Messages of other users of the bus: one whole message, and the stream of a connection."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final

from integration.fuzz.target import Target
from nodeagent.host.dbus.codec import decode, encode, variant
from nodeagent.host.dbus.connection import Connection
from nodeagent.host.dbus.header import Message, MessageKind, frame_size

CALL: Final = Message(
    MessageKind.CALL,
    "/org/nodeagent",
    "org.nodeagent.Agent1",
    "Apply",
    destination="org.nodeagent",
    signature="a{sv}as(ybx)",
    body=({"a": variant("s", "x"), "b": variant("av", [variant("u", 7)])}, ["y"], [1, True, -5]),
)
SIGNAL: Final = Message(MessageKind.SIGNAL, "/", "org.example", "Changed")


def wire(data: bytes) -> None:
    with suppress(ValueError):
        frame_size(data[:16].ljust(16, b"\0"))
    # The connection takes every error for a message that the bus should have rejected.
    with suppress(Exception):
        decode(data)


def stream(data: bytes) -> None:
    asyncio.run(_stream(data))


async def _stream(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    connection = Connection(ours)
    connection.admit = lambda header: 10 if header.kind is MessageKind.CALL else 0
    asyncio.get_running_loop().add_reader(ours, connection._readable)
    try:
        # In two parts, so that a message may be cut.
        for part in (data[: len(data) // 2], data[len(data) // 2 :]):
            # The connection ends with the first message that breaks the format.
            with suppress(BrokenPipeError):
                theirs.sendall(part)
            for _ in range(3):
                await asyncio.sleep(0)
    finally:
        connection.close()
        theirs.close()
    if failures:
        raise AssertionError(failures[0].get("message")) from failures[0].get("exception")


TARGETS: Final = (
    Target("bus-wire", wire, [encode(CALL, 1), encode(SIGNAL, 2), b"", b"l\1\0\1" + b"\xff" * 12]),
    Target(
        "bus-stream", stream, [encode(CALL, 1) + encode(SIGNAL, 2), encode(SIGNAL, 3)[:-1], b"B\4\0\1" + b"\0" * 12]
    ),
)
