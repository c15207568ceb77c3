# SPDX-License-Identifier: Apache-2.0
"""Connected clients: registered clients keep the daemon alive until they unregister or leave the bus."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.standins.rpmostreed.standin.gir import Gio, GLib
from integration.standins.rpmostreed.standin.log import log


@dataclass(frozen=True, slots=True)
class _Client:
    text: str
    watch: int


class Clients:
    """Clients register by unique bus name, so a restarted daemon has none. `changed` is called after each change."""

    def __init__(self, connection: Any, changed: Callable[[], None]) -> None:
        self._connection = connection
        self._changed = changed
        self._clients: dict[str, _Client] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, sender: str, identifier: str | None) -> None:
        if sender in self._clients:
            return
        unit, uid = self.unit_of(sender), self.uid_of(sender)
        text = "client("
        text += f"id:{identifier} " if identifier is not None else ""
        text += f"dbus{sender}"
        text += f" unit:{unit}" if unit is not None else ""
        text += f" uid:{'<unknown>' if uid is None else uid})"
        watch = Gio.bus_watch_name_on_connection(
            self._connection, sender, Gio.BusNameWatcherFlags.NONE, None, lambda *_: self.remove(sender)
        )
        self._clients[sender] = _Client(text, watch)
        log(f"{text} added; new total={len(self)}")
        self._changed()

    def remove(self, sender: str) -> None:
        client = self._clients.pop(sender, None)
        if client is None:
            return
        Gio.bus_unwatch_name(client.watch)
        log(f"{client.text} vanished; remaining={len(self)}")
        self._changed()

    def describe(self, sender: str) -> str:
        client = self._clients.get(sender)
        return f"caller {sender}" if client is None else client.text

    def uid_of(self, sender: str) -> int | None:
        return self._ask("GetConnectionUnixUser", sender)

    def unit_of(self, sender: str) -> str | None:
        """The systemd unit of the caller's process, from its cgroup."""
        pid = self._ask("GetConnectionUnixProcessID", sender)
        try:
            cgroup = Path(f"/proc/{pid}/cgroup").read_text()
        except OSError:
            return None
        match = re.search(r"/([^/\n]+\.(?:service|scope))(?:/[^\n]*)?$", cgroup, re.MULTILINE)
        return match[1] if match is not None else None

    def _ask(self, method: str, sender: str) -> int | None:
        try:
            reply = self._connection.call_sync(
                "org.freedesktop.DBus",
                "/org/freedesktop/DBus",
                "org.freedesktop.DBus",
                method,
                GLib.Variant("(s)", (sender,)),
                GLib.VariantType("(u)"),
                Gio.DBusCallFlags.NONE,
                2000,
                None,
            )
        except GLib.Error as error:
            log(f"Failed to {method} for client {sender}: {error.message}")
            return None
        return int(reply.unpack()[0])
