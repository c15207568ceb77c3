# SPDX-License-Identifier: Apache-2.0
"""Reading a{sv} as the real daemon does: an unknown key or a wrong type is as if it were not there."""

from __future__ import annotations

from typing import Any

from integration.standins.rpmostreed.standin.gir import GLib


class Options:
    def __init__(self, variant: Any) -> None:
        """A GLib.Variant of type a{sv}, or None for an empty one."""
        self._variant = variant if variant is not None else GLib.Variant("a{sv}", {})

    def boolean(self, key: str, default: bool = False) -> bool:
        value = self._lookup(key, "b")
        return default if value is None else bool(value.unpack())

    def text(self, key: str) -> str | None:
        value = self._lookup(key, "s")
        return None if value is None else str(value.unpack())

    def texts(self, key: str) -> list[str]:
        """An empty list is the same as none, as in most of the real code."""
        value = self._lookup(key, "as")
        return [] if value is None else [str(item) for item in value.unpack()]

    def has_texts(self, key: str) -> bool:
        """Return whether the key is there at all with the right type: authorization looks at this."""
        return self._lookup(key, "as") is not None

    def pair(self, key: str) -> tuple[str, str] | None:
        value = self._lookup(key, "(ss)")
        return None if value is None else (str(value.unpack()[0]), str(value.unpack()[1]))

    def handles(self, key: str) -> int:
        """Return the number of file descriptors in it."""
        value = self._lookup(key, "ah")
        return 0 if value is None else int(value.n_children())

    def handle(self, key: str) -> bool:
        return self._lookup(key, "h") is not None

    def _lookup(self, key: str, kind: str) -> Any:
        return self._variant.lookup_value(key, GLib.VariantType(kind))
