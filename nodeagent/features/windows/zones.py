# SPDX-License-Identifier: Apache-2.0
"""Time zones of this host, and the windows in one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from nodeagent.errors import InvalidInput, Problem
from nodeagent.features.windows.decide.freeze import parse_freezes
from nodeagent.features.windows.decide.openings import Openings
from nodeagent.features.windows.decide.schedule import Schedule
from nodeagent.features.windows.decide.window import named_windows, parse_windows
from nodeagent.features.windows.reasons import WindowReason
from nodeagent.reasons import Reason

HOST_ZONE: Final = "localtime"
LOCALTIME: Final = Path("/etc/localtime")
# Zones that an error about an unknown one names.
MOST_NEAR: Final = 3


def openings_of(windows: Sequence[str], freezes: Sequence[str], zone: str) -> Openings:
    """Return when updates may begin. Blocks: it reads the time zone.

    Raises ``InvalidInput`` (``SettingsInvalid``, ``TimeZoneUnknown``).
    """
    # Without them, a zone of the host that cannot be read does not matter.
    tz = load_zone(zone) if windows or freezes or zone != HOST_ZONE else ZoneInfo("UTC")
    with _problem("windows.open"):
        named_windows(windows)
        schedule = Schedule(parse_windows(windows), tz) if windows else None
    with _problem("windows.freeze"):
        spans = [freeze.span(tz) for freeze in parse_freezes(freezes)]
    return Openings(schedule, tuple(sorted(spans)))


@contextmanager
def _problem(key: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        message = f"{key}: {error}"
        problems = [Problem(key, message)]
        raise InvalidInput(message, reason=Reason.SETTINGS_INVALID, problems=problems) from None


def load_zone(name: str, localtime: Path = LOCALTIME) -> ZoneInfo:
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
        near = () if name == HOST_ZONE else near_zones(name)
        what = str(localtime) if name == HOST_ZONE else repr(name)
        message = f"{what} is not a time zone of this host" + (f"; did you mean {' or '.join(near)}?" if near else "")
        problems = [Problem("windows.zone", f"windows.zone: {message}")]
        raise InvalidInput(message, reason=WindowReason.TIME_ZONE_UNKNOWN, problems=problems) from error


def zone_name(name: str, localtime: Path = LOCALTIME) -> str:
    """Return a time zone as operators name it. That of the host is where its link leads, as in timedatectl(1)."""
    if name != HOST_ZONE:
        return name
    try:
        zone = str(localtime.readlink()).partition("/zoneinfo/")[2]
    except OSError:
        # A copy in place of a link, or none.
        zone = ""
    return f"{zone} of this host".lstrip() if zone or localtime.exists() else "UTC of this host"


def near_zones(name: str) -> Sequence[str]:
    """Return zones of this host with a similar name, or of the city ``name``, the most similar first. Blocks: it reads
    the database of time zones."""
    zones = sorted(available_timezones())
    cities = [zone for zone in zones if zone.lower().rpartition("/")[2] == name.lower()]
    by_name = {zone.lower(): zone for zone in zones}
    return cities[:MOST_NEAR] or [by_name[near] for near in get_close_matches(name.lower(), by_name, MOST_NEAR, 0.8)]
