# SPDX-License-Identifier: Apache-2.0
"""Fake services on the private bus, in dbus-next's low-level API: another implementation of the wire than ours."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from dbus_next import Message, MessageType
from dbus_next.aio import MessageBus

FAILED = "org.freedesktop.DBus.Error.Failed"


class DBusFault(Exception):
    """Raised by a handler: becomes an error reply."""

    def __init__(self, name: str, text: str = "no") -> None:
        super().__init__(text)
        self.name = name
        self.text = text


class FakePeer:
    """Answers the methods given by ``on``; a handler returns (signature, body[, fds]), or None for no answer at all."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.calls: list[tuple[str, list[Any]]] = []
        self.handlers: dict[str, Callable[[Message], Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, address: str) -> FakePeer:
        self.bus = await MessageBus(bus_address=address, negotiate_unix_fd=True).connect()
        self.bus.add_message_handler(self._on_message)
        if self.name:
            await self.bus.request_name(self.name)
        return self

    async def stop(self) -> None:
        await self._end_answers()
        try:
            self.bus.disconnect()
            async with asyncio.timeout(1):
                await self.bus.wait_for_disconnect()
        except Exception:  # whatever ended it: it is over
            pass
        # A bus that was killed may have closed the stream with bytes that are not sent.
        with contextlib.suppress(OSError, ValueError):
            self.bus._stream.close()
        self.bus._sock.close()
        # Calls that arrived until the bus was closed.
        await self._end_answers()

    async def _end_answers(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> FakePeer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def on(self, member: str, handler: Callable[[Message], Any]) -> None:
        self.handlers[member] = handler

    def members(self) -> list[str]:
        return [member for member, _ in self.calls]

    async def emit(self, path: str, interface: str, member: str, signature: str = "", body: Any = ()) -> None:
        await self.bus.send(Message.new_signal(path, interface, member, signature, list(body)))

    async def call(
        self, destination: str, path: str, interface: str, member: str, signature: str = "", body: Any = ()
    ) -> Message:
        message = Message(
            destination=destination, path=path, interface=interface, member=member, signature=signature, body=list(body)
        )
        async with asyncio.timeout(10):
            reply = await self.bus.call(message)
        assert reply is not None
        return reply

    def _on_message(self, message: Message) -> bool:
        if message.message_type is not MessageType.METHOD_CALL:
            return False
        self.calls.append((message.member, message.body))
        task = asyncio.ensure_future(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _answer(self, message: Message) -> None:
        handler = self.handlers.get(message.member)
        if handler is None:
            await self._error(message, DBusFault("org.freedesktop.DBus.Error.UnknownMethod", message.member))
            return
        try:
            answer = handler(message)
            if inspect.isawaitable(answer):
                answer = await answer
        except DBusFault as fault:
            await self._error(message, fault)
            return
        if answer is not None:
            signature, body, *fds = answer
            await self.bus.send(Message.new_method_return(message, signature, list(body), *fds))

    async def _error(self, message: Message, fault: DBusFault) -> None:
        await self.bus.send(Message.new_error(message, fault.name, fault.text))
