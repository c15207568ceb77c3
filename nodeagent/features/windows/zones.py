# SPDX-License-Identifier: Apache-2.0
"""Time zones of this host, and the windows in one of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from nodeagent.errors import InvalidInput
from nodeagent.features.windows.decide.weekly import Schedule, named_windows, parse_windows
from nodeagent.features.windows.reasons import WindowReason
from nodeagent.reasons import Reason

HOST_ZONE: Final = "localtime"


def schedule_of(windows: Sequence[str], zone: str) -> Schedule | None:
    """Return the windows; None if an update may begin at any time. Blocks: it reads the time zone.

    Raises ``InvalidInput`` (``SettingsInvalid``, ``TimeZoneUnknown``).
    """
    # Without windows, a zone of the host that cannot be read does not matter.
    found = load_zone(zone) if windows or zone != HOST_ZONE else None
    try:
        named_windows(windows)
    except ValueError as error:
        raise InvalidInput(f"windows.open: {error}", reason=Reason.SETTINGS_INVALID) from None
    return Schedule(parse_windows(windows), found) if found and windows else None


def load_zone(name: str, localtime: Path = Path("/etc/localtime")) -> ZoneInfo:
    """Read a time zone from the database of this host; ``localtime`` is the zone of the host.

    A host without the file ``localtime`` is in UTC, as in localtime(5).
    """
    try:
        if name != HOST_ZONE:
            return ZoneInfo(name)
        try:
            with localtime.open("rb") as file:
                # Not by its name: the link may lead to a file outside of the database.
                return ZoneInfo.from_file(file, HOST_ZONE)
        except FileNotFoundError:
            return ZoneInfo("UTC")
    except (OSError, ValueError, KeyError) as error:
        # ZoneInfoNotFoundError, for an unknown name, is a KeyError.
        raise InvalidInput(
            f"{name!r} is not a time zone of this host", reason=WindowReason.TIME_ZONE_UNKNOWN
        ) from error
