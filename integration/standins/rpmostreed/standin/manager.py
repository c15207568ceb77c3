# SPDX-License-Identifier: Apache-2.0
"""The ObjectManager at the base path."""

from __future__ import annotations

from typing import Any

from integration.standins.rpmostreed.standin import interfaces
from integration.standins.rpmostreed.standin.exported import Exported, emit_on
from integration.standins.rpmostreed.standin.gir import GLib


class Manager:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._objects: dict[str, list[Exported]] = {}
        self._self = Exported(interfaces.OBJECT_MANAGER, interfaces.BASE_PATH, self._handle, {})
        self._self.export(connection)

    def publish(self, *exported: Exported) -> None:
        """All on the same path, which becomes an object of the manager."""
        path = exported[0].path
        for one in exported:
            one.export(self._connection)
        self._objects[path] = list(exported)
        body = GLib.Variant("(oa{sa{sv}})", (path, _described(exported)))
        emit_on(self._connection, interfaces.BASE_PATH, interfaces.OBJECT_MANAGER, "InterfacesAdded", body)

    def unpublish(self, path: str) -> None:
        exported = self._objects.pop(path)
        for one in exported:
            one.unexport(self._connection)
        body = GLib.Variant("(oas)", (path, [one.interface for one in exported]))
        emit_on(self._connection, interfaces.BASE_PATH, interfaces.OBJECT_MANAGER, "InterfacesRemoved", body)

    def _handle(self, _method: str, _parameters: Any, invocation: Any) -> None:
        objects = {path: _described(exported) for path, exported in self._objects.items()}
        invocation.return_value(GLib.Variant("(a{oa{sa{sv}}})", (objects,)))


def _described(exported: Any) -> dict[str, dict[str, Any]]:
    return {one.interface: one.properties() for one in exported}
