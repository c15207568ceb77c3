"""Time zones from this host's database, by name; `localtime` is the host's own."""

from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

from nodeagent.errors import InvalidInput

__all__ = ["load_zone"]


def load_zone(name: str, localtime: Path = Path("/etc/localtime")) -> ZoneInfo:
    """Blocks: it reads a file. Raises ``InvalidInput`` (``TimeZoneUnknown``). A host without ``localtime`` is in UTC,
    as systemd has it (localtime(5))."""
    try:
        if name != "localtime":
            return ZoneInfo(name)
        try:
            with localtime.open("rb") as file:
                return ZoneInfo.from_file(file, "localtime")
        except FileNotFoundError:
            return ZoneInfo("UTC")
    except (OSError, ValueError, KeyError) as error:  # a name that is not there is a KeyError (ZoneInfoNotFoundError)
        raise InvalidInput(f"{name!r} is no time zone that this host knows", reason="TimeZoneUnknown") from error
