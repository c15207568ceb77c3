# SPDX-License-Identifier: Apache-2.0
"""A logind on the private bus, of an age that tests choose."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from dbus_next import Message, Variant

from tests.support.fake_peer import DBusFault, FakePeer

PATH = "/org/freedesktop/login1"


class FakeLogind(FakePeer):
    """``version`` decides which calls and flags there are, and whether inhibitors stop root."""

    def __init__(self, version: int = 257) -> None:
        super().__init__("org.freedesktop.login1")
        self.version = version
        self.inhibitors: list[list[Any]] = []
        self.sessions: dict[str, str] = {}  # id to class
        self.held: list[int] = []  # our ends of the pipes
        self._given = asyncio.Event()  # set when the client has the only other end
        self.preparing = False
        self.going_down: str = ""
        self.on("ListInhibitors", lambda m: ("a(ssssuu)", (self.inhibitors,)))
        self.on("Inhibit", self._inhibit)
        self.on("ListSessions", self._list_sessions)
        self.on("Get", self._get)
        for method, action in (("Reboot", "reboot"), ("PowerOff", "poweroff")):
            self.on(method, lambda m, action=action: self._down(action, 0))
            if version >= 246:
                self.on(f"{method}WithFlags", lambda m, action=action: self._down(action, m.body[0]))
        self.on("SetWallMessage", lambda m: ("", ()))
        self.on("ScheduleShutdown", self._schedule)
        self.on("CancelScheduledShutdown", lambda m: ("b", (True,)))

    async def stop(self) -> None:
        await super().stop()
        for fd in self.held:
            os.close(fd)

    async def still_held(self) -> bool:
        """Return whether the client has its end open: logind sees the pipe hang up."""
        await self._given.wait()
        os.set_blocking(self.held[-1], False)
        try:
            return os.read(self.held[-1], 1) != b""
        except BlockingIOError:
            return True

    async def _inhibit(self, message: Message) -> Any:
        what, who, why, mode = message.body
        assert (what, mode) == ("shutdown", "block")
        self.inhibitors.append([what, who, why, mode, 0, os.getpid()])
        ours, theirs = os.pipe()
        self.held.append(ours)
        self._given.clear()
        await self.bus.send(Message.new_method_return(message, "h", [0], [theirs]))
        os.close(theirs)
        self._given.set()

    @property
    def _denial(self) -> str:
        if self.version > 257:
            return "org.freedesktop.login1.BlockedByInhibitorLock"
        return "org.freedesktop.DBus.Error.AccessDenied"

    def _schedule(self, message: Message) -> Any:
        if message.body[0] == "soft-reboot" and self.version < 254:
            raise DBusFault("org.freedesktop.DBus.Error.InvalidArgs", "Unsupported shutdown type")
        if self.version >= 257 and any(mode == "block" for _, _, _, mode, *_ in self.inhibitors):
            raise DBusFault(self._denial, "Access denied due to active block inhibitor")
        return "", ()

    def _list_sessions(self, _message: Message) -> Any:
        return "a(susso)", ([[s, 1000, "core", "", f"{PATH}/session/{s}"] for s in [*self.sessions, "gone"]],)

    def _get(self, message: Message) -> Any:
        if message.body[1] == "PreparingForShutdown":
            return "v", (Variant("b", self.preparing),)
        kind = self.sessions.get(message.path.rpartition("/")[2])
        if kind is None:
            raise DBusFault("org.freedesktop.DBus.Error.UnknownObject")
        return "v", (Variant("s", kind),)

    def _down(self, action: str, flags: int) -> Any:
        known = 0b11111 if self.version >= 257 else 0b01111 if self.version >= 255 else 0b00111
        if flags & ~(known if self.version >= 254 else 0b00011) or (flags & 4 and action != "reboot"):
            raise DBusFault("org.freedesktop.DBus.Error.InvalidArgs", "Invalid flags parameter")
        if self.going_down:
            raise DBusFault("org.freedesktop.login1.OperationInProgress", f"Action {self.going_down} in progress")
        blocked = any("shutdown" in what and mode == "block" for what, _, _, mode, *_ in self.inhibitors)
        if blocked and (flags & 1 or (self.version >= 257 and not flags & 16)):
            raise DBusFault(self._denial, "Access denied due to active block inhibitor")
        self.going_down = "soft-reboot" if flags & 4 else action
        return "", ()
