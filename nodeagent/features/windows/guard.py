# SPDX-License-Identifier: Apache-2.0
"""The place of the windows in the course of an update."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, tzinfo
from typing import Protocol

from nodeagent.errors import InvalidInput, Refused
from nodeagent.features.windows.decide.start import RequestedStart, waits
from nodeagent.features.windows.decide.weekly import Schedule
from nodeagent.features.windows.reasons import WindowReason
from nodeagent.features.windows.settings import WindowSettings
from nodeagent.features.windows.zones import load_zone, schedule_of
from nodeagent.update.run import Run
from nodeagent.update.stages.guard import Guard
from nodeagent.update.wait import Delayed


class Times(Protocol):
    """``InvalidInput`` (``TimeZoneUnknown``): the time zone was readable before, and is not any more."""

    async def zone(self) -> tzinfo:
        """Return the time zone of windows."""
        ...

    async def schedule(self) -> Schedule | None:
        """Return the windows of the settings; None if an update may begin at any time."""
        ...


class HostTimes:
    """Reads the time zone each time, because an admin may change that of the host."""

    def __init__(self, settings: WindowSettings) -> None:
        self._settings = settings

    def use(self, settings: WindowSettings) -> None:
        self._settings = settings

    async def zone(self) -> tzinfo:
        return await asyncio.to_thread(load_zone, self._settings.zone)

    async def schedule(self) -> Schedule | None:
        settings = self._settings
        return await asyncio.to_thread(schedule_of, settings.open, settings.zone) if settings.open else None


class TimeGuard(Guard):
    """An update begins at the time that an operator requested, and in a window."""

    def __init__(self, times: Times) -> None:
        self._times = times

    async def check_request(self, run: Run) -> None:
        if run.hold is None:
            return
        options = run.hold.options
        start, now = RequestedStart(options.get("not_before", ""), options.get("window", "")), _now(run)
        try:
            zone = await self._times.zone() if start.window else UTC
        except InvalidInput as error:
            raise Delayed(error.message, reason=error.reason, after=None) from error
        if (waiting := waits(start, now, zone)) is None:
            return
        when = _text(waiting.until) if waiting.until else "a time that never comes"
        message = f"the update to {run.record.to_name} waits until {when}, as requested by {run.hold.requester}"
        after = (waiting.until - now).total_seconds() if waiting.until else None
        raise Delayed(message, reason=WindowReason.SCHEDULED, after=after)

    async def may_begin(self, run: Run) -> None:
        try:
            schedule = await self._times.schedule()
        except InvalidInput as error:
            raise Refused(f"no window is open: {error.message}", reason=WindowReason.WINDOW_CLOSED) from error
        if schedule is None or schedule.is_open(_now(run)):
            return
        opens = schedule.opens(_now(run))
        when = f"opens {_text(opens)}" if opens else "never opens"
        raise Refused(f"no window is open; the next one {when}", reason=WindowReason.WINDOW_CLOSED)


def _now(run: Run) -> datetime:
    return datetime.fromisoformat(run.ports.clock.now())


def _text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
