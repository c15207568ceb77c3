# SPDX-License-Identifier: Apache-2.0
"""`nodeagent apply --at`: begin the update at a time, or in a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodeagent.cli._render import ahead, clock, local_now
from nodeagent.errors import InvalidInput
from nodeagent.features.windows.decide.start import parse_start
from nodeagent.features.windows.decide.weekly import named_windows
from nodeagent.features.windows.reasons import WindowReason
from nodeagent.features.windows.settings import WindowSettings
from nodeagent.features.windows.zones import HOST_ZONE, load_zone
from nodeagent.settings.load import load


def read(text: str) -> Mapping[str, str]:
    """Raises ``InvalidInput`` (``BadTime``)."""
    try:
        not_before, window = _start(text)
    except ValueError as error:
        reason = WindowReason.BAD_TIME
        raise InvalidInput(f"--at: {error}", reason=reason, hint=reason.hint) from None
    return {"not_before": not_before, "window": window}


def begins(options: Mapping[str, Any]) -> str:
    if start := options["not_before"]:
        now = local_now()
        return f" at {clock(start, now)}{ahead(start, now)}"
    return f" in the window {options['window']}"


def _start(text: str) -> tuple[str, str]:
    # A time begins with a digit, or has a space.
    if text[:1].isalpha() and " " not in text:
        named = named_windows(load().settings.of(WindowSettings).open)
        if window := named.get(text):
            return "", window
    return parse_start(text, local_now(), load_zone(HOST_ZONE))
