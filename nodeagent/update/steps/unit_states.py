"""Active states of units, as systemd names them (org.freedesktop.systemd1)."""

from __future__ import annotations

from typing import Final

UP: Final = frozenset({"active", "reloading", "refreshing"})
DOWN: Final = frozenset({"inactive", "failed"})
