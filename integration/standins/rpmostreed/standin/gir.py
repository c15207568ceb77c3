# SPDX-License-Identifier: Apache-2.0
"""The one place that says which introspected libraries, in which versions."""

from __future__ import annotations

import gi

gi.require_version("OSTree", "1.0")

from gi.repository import Gio, GLib, OSTree  # noqa: E402 - the version has to be asked for first

__all__ = ["GLib", "Gio", "OSTree"]
