# SPDX-License-Identifier: Apache-2.0
"""A transaction's private socket, spoken byte by byte: a D-Bus server without a bus, as GLib's is.

Written against the D-Bus specification with dbus-next's marshalling, not against our connection.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from dbus_next import Message, MessageType, Variant
from dbus_next._private.unmarshaller import Unmarshaller

INTERFACE = "org.projectatomic.rpmostree1.Transaction"

Script = Callable[["FakeTransaction"], Awaitable[None]]


class FakeTransaction:
    """``script`` is the worker: it begins with the first Start and, by default, is through before that is answered."""

    def __init__(self, socket: Path, script: Script) -> None:
        self.address = f"unix:path={socket}"
        self.script = script
        self.title = "new-deployment"
        self.client = "client(id:cli dbus:1.5 unit:session-3.scope uid:0)"
        self.answer_first = False  # the reply to Start before any signal
        self.auth = "ok"  # or: hang, close (during authentication), gone (right after it)
        self.calls: list[str] = []
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.finished: tuple[bool, str] | None = None
        self.over = asyncio.Event()  # Finished, and no client is connected any more.
        self._socket = socket
        self._peers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._serial = 0

    async def listen(self) -> FakeTransaction:
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._socket)
        return self

    async def close(self) -> None:
        """Close everything as a daemon that dies does. The file of the socket stays."""
        self._server.close()
        for writer in tuple(self._peers):
            writer.close()
        me = asyncio.current_task()
        for task in self._tasks - {me}:  # type: ignore[operator]
            task.cancel()
        await asyncio.gather(*(t for t in self._tasks if t is not me), return_exceptions=True)

    async def emit(self, member: str, signature: str, *body: Any) -> None:
        for writer in tuple(self._peers):
            await self._send(writer, Message.new_signal("/", INTERFACE, member, signature, list(body)))

    async def finish(self, success: bool = True, text: str = "") -> None:
        self.finished = (success, text)
        await self.emit("Finished", "bs", success, text)
        self._over()

    def _over(self) -> None:
        if self.finished is not None and not self._peers:
            self.over.set()

    async def _send(self, writer: asyncio.StreamWriter, message: Message) -> None:
        self._serial += 1
        message.serial = self._serial
        try:
            writer.write(message._marshall())
            await writer.drain()
        except ConnectionError:
            pass

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        try:
            if await self._authenticate(reader, writer):
                self._peers.add(writer)
                while True:
                    await self._answer(writer, await _read(reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._peers.discard(writer)
            writer.close()
            self._over()

    async def _authenticate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        assert await reader.readexactly(1) == b"\0"
        while line := await reader.readline():
            if self.auth == "hang":
                await asyncio.sleep(60)
            if self.auth == "close":
                return False
            if line.startswith(b"AUTH EXTERNAL "):
                writer.write(b"OK 0123456789abcdef0123456789abcdef\r\n")
            elif line == b"NEGOTIATE_UNIX_FD\r\n":
                writer.write(b"AGREE_UNIX_FD\r\n")
            elif line == b"BEGIN\r\n":
                return self.auth == "ok"
        return False

    async def _answer(self, writer: asyncio.StreamWriter, message: Message) -> None:
        self.calls.append(message.member)
        if message.member == "Start":
            await self._start(writer, message)
        elif message.member == "Cancel":
            await self._send(writer, Message.new_method_return(message))
            self.cancelled.set()
        elif message.member == "GetAll":
            values = {"Title": Variant("s", self.title), "InitiatingClientDescription": Variant("s", self.client)}
            await self._send(writer, Message.new_method_return(message, "a{sv}", [values]))
        else:  # Hello above all: this is no bus
            error = "org.freedesktop.DBus.Error.UnknownMethod"
            await self._send(writer, Message.new_error(message, error, f"No such method {message.member}"))

    async def _start(self, writer: asyncio.StreamWriter, message: Message) -> None:
        first, late = not self.started.is_set(), self.finished is not None
        self.started.set()
        reply = Message.new_method_return(message, "b", [first])
        if self.answer_first:
            await self._send(writer, reply)
        if first:
            task = asyncio.ensure_future(self.script(self))
            self._tasks.add(task)
            if not self.answer_first:
                await asyncio.wait({task}, timeout=0.05)  # a quick worker is through by now
        if not self.answer_first:
            await self._send(writer, reply)
        if late and self.finished:
            await self._send(writer, Message.new_signal("/", INTERFACE, "Finished", "bs", list(self.finished)))


async def _read(reader: asyncio.StreamReader) -> Message:
    head = await reader.readexactly(16)
    body, _serial, fields = struct.unpack_from("<III", head, 4)
    message = Unmarshaller(BytesIO(head + await reader.readexactly(-(-fields // 8) * 8 + body))).unmarshall()
    assert message is not None
    assert message.message_type is MessageType.METHOD_CALL
    assert message.destination is None  # Only the server is connected.
    return message
