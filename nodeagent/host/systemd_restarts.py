"""What systemd knows of the restart of a unit: the units that it takes along, and when the unit started."""

from __future__ import annotations

import asyncio
from typing import Final

from nodeagent.host.dbus.client import Bus
from nodeagent.host.systemd_jobs import NAME, UnitJobFailed
from nodeagent.reasons import Reason

__all__ = ["check_started", "taken_along"]

UNIT: Final = "org.freedesktop.systemd1.Unit"

# Properties of a unit with the units that systemd restarts in the same transaction, if they are active.
TAKES_ALONG: Final = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf")


async def taken_along(bus: Bus, path: str) -> frozenset[str]:
    """Return the units that are restarted along with the unit at the object ``path``, not those of the next level."""
    lists = await asyncio.gather(*(bus.get(NAME, path, UNIT, each) for each in TAKES_ALONG))
    return frozenset(name for names in lists for name in names)


async def check_started(bus: Bus, unit: str, path: str, asked: float) -> None:
    """Raise ``UnitJobFailed`` if the unit has run since before ``asked``, seconds of CLOCK_MONOTONIC."""
    wanted = ("ActiveState", "InactiveExitTimestampMonotonic")
    active, began = await asyncio.gather(*(bus.get(NAME, path, UNIT, each) for each in wanted))
    if active in ("active", "activating", "reloading", "refreshing") and 0 < began < asked * 1e6:
        message = f"{unit}: the job is done, but the unit has not started again"
        raise UnitJobFailed(unit, "", message, reason=Reason.JOB_FAILED)
