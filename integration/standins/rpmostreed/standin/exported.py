# SPDX-License-Identifier: Apache-2.0
"""An interface on one or many connections, with PropertiesChanged as gdbus-codegen's skeletons send it.

One signal from an idle for everything that was set since the last, only for what really differs, on every connection.
Being on the bus socket, it has no order towards anything on a transaction's peer socket.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

from integration.standins.rpmostreed.standin import interfaces
from integration.standins.rpmostreed.standin.gir import GLib

Handler = Callable[[str, Any, Any], None]  # (method, parameters, invocation)


class Exported:
    """`handler` must answer every invocation, now or later."""

    def __init__(self, interface: str, path: str, handler: Handler, properties: dict[str, Any]) -> None:
        """`properties` are GLib.Variants of the declared types."""
        self.interface = interface
        self.path = path
        self._handler = handler
        self._properties = dict(properties)
        self._before: dict[str, Any] = {}  # what clients know of properties that were set since the last signal
        self._connections: dict[Any, int] = {}
        self._lock = threading.Lock()

    @property
    def connections(self) -> list[Any]:
        with self._lock:
            return list(self._connections)

    def export(self, connection: Any) -> None:
        identifier = connection.register_object(self.path, interfaces.info(self.interface), self._call, self._get, None)
        with self._lock:
            self._connections[connection] = identifier

    def unexport(self, connection: Any) -> None:
        with self._lock:
            identifier = self._connections.pop(connection, None)
        if identifier is not None:
            connection.unregister_object(identifier)

    def property(self, name: str) -> Any:
        with self._lock:
            return self._properties[name]

    def properties(self) -> dict[str, Any]:
        with self._lock:
            return dict(self._properties)

    def set(self, name: str, value: Any) -> None:
        """Set a property. May be called from any thread."""
        with self._lock:
            if not self._connections:
                self._properties[name] = value  # No client can have read the previous value.
                return
            first = not self._before
            self._before.setdefault(name, self._properties[name])
            self._properties[name] = value
        if first:
            GLib.idle_add(self._changed, priority=GLib.PRIORITY_DEFAULT)

    def emit(self, name: str, *values: Any) -> None:
        """Emit on every connection, from any thread. Peers get the message without a sender and a destination."""
        body = GLib.Variant(interfaces.signal_signature(self.interface, name), values) if values else None
        for connection in self.connections:
            emit_on(connection, self.path, self.interface, name, body)

    def _changed(self) -> bool:
        with self._lock:
            changed = {
                name: self._properties[name]
                for name, before in self._before.items()
                if not before.equal(self._properties[name])
            }
            self._before.clear()
        if changed:
            body = GLib.Variant("(sa{sv}as)", (self.interface, changed, []))
            for connection in self.connections:
                emit_on(connection, self.path, "org.freedesktop.DBus.Properties", "PropertiesChanged", body)
        return False

    def _call(self, *arguments: Any) -> None:
        *_, method, parameters, invocation = arguments
        try:
            self._handler(method, parameters, invocation)
        except Exception as error:  # A bug of the stand-in must not block the caller without end.
            traceback.print_exc()
            invocation.return_dbus_error("org.freedesktop.DBus.Error.Failed", f"bug of the stand-in: {error!r}")

    def _get(self, *arguments: Any) -> Any:
        return self.property(arguments[4])


def emit_on(connection: Any, path: str, interface: str, name: str, body: Any) -> None:
    """Emit on one connection. One that just closed is no error."""
    try:
        connection.emit_signal(None, path, interface, name, body)
    except GLib.Error:
        return
