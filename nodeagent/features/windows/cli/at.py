# SPDX-License-Identifier: Apache-2.0
"""`nodeagent apply --at`: begin the update at a time, or in a window."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from nodeagent.cli._render import ahead, clock, local_now
from nodeagent.cli._settings import valid_settings
from nodeagent.core.plan.change import Plan
from nodeagent.errors import InvalidInput
from nodeagent.features.windows.decide.start import ANY_TIME, parse_start, start_of
from nodeagent.features.windows.decide.window import named_windows
from nodeagent.features.windows.reasons import WindowReason
from nodeagent.features.windows.settings import WindowSettings
from nodeagent.features.windows.zones import HOST_ZONE, load_zone, zone_name
from nodeagent.settings.load import load

NOW: Final = "now"


def read(text: str) -> Mapping[str, str]:
    """Raises ``InvalidInput`` (``BadTime``)."""
    if text == NOW:
        return {"not_before": "", "window": "", "any_time": ANY_TIME}
    try:
        not_before, window = _start(text)
    except ValueError as error:
        reason = WindowReason.BAD_TIME
        raise InvalidInput(f"--at: {error}", reason=reason, hint=reason.hint) from None
    return {"not_before": not_before, "window": window, "any_time": ""}


def begins(options: Mapping[str, Any]) -> str:
    if options["any_time"]:
        return " at once, also outside of the windows and in a freeze"
    if start := options["not_before"]:
        now = here()
        zone = start_of(start).astimezone(now.tzinfo).tzname()
        return f" at {clock(start, now)} {zone}{ahead(start, now)}"
    zone = zone_name(valid_settings().of(WindowSettings).zone)
    return f" in the window {options['window']} (time zone {zone})"


def ends(_options: Mapping[str, Any], _plan: Plan) -> str:
    return ""


def here() -> datetime:
    """Return the time in the zone of the host, with its changes for daylight saving."""
    return local_now().astimezone(load_zone(HOST_ZONE))


def _start(text: str) -> tuple[str, str]:
    # A time begins with a digit, or has a space.
    if text[:1].isalpha() and " " not in text:
        named = named_windows(load().settings.of(WindowSettings).open)
        if window := named.get(text):
            return "", window
    now = here()
    return parse_start(text, now, now.tzinfo or UTC)
