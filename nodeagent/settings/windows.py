"""The maintenance windows of the settings, in their time zone."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

from nodeagent.core.coordination.windows import Schedule, parse_windows
from nodeagent.errors import InvalidInput
from nodeagent.reasons import Reason
from nodeagent.settings.cluster import WindowSettings

__all__ = ["load_zone", "window_schedule"]


def window_schedule(settings: WindowSettings) -> Schedule | None:
    """Return the windows; None if an update may begin at any time. Blocks: it reads the time zone.

    Raises ``InvalidInput`` (``TimeZoneUnknown``).
    """
    zone = load_zone(settings.zone)
    return Schedule(parse_windows(settings.open), zone) if settings.open else None


def load_zone(name: str, localtime: Path = Path("/etc/localtime")) -> ZoneInfo:
    """Read a time zone from the database of this host; ``localtime`` is the zone of the host.

    A host without the file ``localtime`` is in UTC, as in localtime(5).
    """
    try:
        if name != "localtime":
            return ZoneInfo(name)
        try:
            with localtime.open("rb") as file:
                return ZoneInfo.from_file(file, "localtime")
        except FileNotFoundError:
            return ZoneInfo("UTC")
    except (OSError, ValueError, KeyError) as error:
        # ZoneInfoNotFoundError, for an unknown name, is a KeyError.
        raise InvalidInput(f"{name!r} is not a time zone of this host", reason=Reason.TIME_ZONE_UNKNOWN) from error
