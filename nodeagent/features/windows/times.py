# SPDX-License-Identifier: Apache-2.0
"""What this host knows about the time of an update: its settings, its time zone, its place among others, its past."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

from nodeagent.errors import AgentError
from nodeagent.features.windows.decide.estimate import EXPECTED, Estimate, Work, estimate
from nodeagent.features.windows.decide.listing import MOST, SCHEMA, listing
from nodeagent.features.windows.decide.openings import Openings
from nodeagent.features.windows.decide.turn import HostTurn, Terms, share_of, turn
from nodeagent.features.windows.settings import WindowSettings
from nodeagent.features.windows.zones import load_zone, openings_of
from nodeagent.update.ports.host import Clock
from nodeagent.update.ports.store import Store

# Entries of the history that are searched for similar updates. Older ones have no trail any more.
SEARCHED: Final = 20
# An update that fits in none of the openings of a month may fit in one that comes near later.
SEARCH_AGAIN: Final = timedelta(hours=1)


def terms_of(settings: WindowSettings, share: float) -> Terms:
    """Return how a host with this place among all hosts uses a window."""
    return Terms(timedelta(minutes=settings.spread), share, settings.end_inside)


class Times:
    """Always open. ``openings`` and ``zone`` raise ``InvalidInput`` (``TimeZoneUnknown``): the time zone was readable
    before, and is not any more."""

    terms = Terms()
    # What fitted in no opening, and when all of them were searched.
    _too_long: tuple[object, datetime] | None = None

    def now(self) -> datetime:
        """Return the time for a plan."""
        raise NotImplementedError

    async def zone(self) -> tzinfo:
        """Return the time zone of windows."""
        return UTC

    async def openings(self) -> Openings | None:
        """Return when updates may begin by the settings; None for always."""
        return None

    async def estimate(self, work: Work) -> Estimate:
        """Return how long an update takes."""
        return Estimate(work, EXPECTED[work], EXPECTED[work])

    async def turn(self, openings: Openings, needed: timedelta, now: datetime) -> HostTurn:
        """Return when this host may begin an update that needs ``needed``."""
        return self._turn(openings, needed, now)

    def _turn(self, openings: Openings, needed: timedelta, now: datetime) -> HostTurn:
        windows = tuple(openings.windows.windows) if openings.windows is not None else None
        asked = (windows, tuple(openings.freezes), self.terms, needed)
        before, searched = self._too_long or (None, now)
        too_long = asked == before and timedelta(0) <= now - searched < SEARCH_AGAIN
        host_turn = turn(openings, self.terms, needed, now, too_long=too_long)
        if not too_long:
            self._too_long = (asked, now) if not host_turn.fits else None
        return host_turn


class HostTimes(Times):
    """Reads the time zone each time, because an admin may change that of the host.

    ``host_id`` returns the id of this host, which is read once, and may raise ``AgentError``.
    """

    def __init__(self, settings: WindowSettings, store: Store, clock: Clock, host_id: Callable[[], str]) -> None:
        self._settings, self._store, self._clock = settings, store, clock
        try:
            self._share = share_of(host_id())
        # A host without an id begins first.
        except AgentError:
            self._share = 0.0
        self._version: object = None
        self._estimates: Mapping[Work, Estimate] = {}

    def use(self, settings: WindowSettings) -> None:
        self._settings = settings

    @property
    def terms(self) -> Terms:  # type: ignore[override]
        return terms_of(self._settings, self._share)

    def now(self) -> datetime:
        return datetime.fromisoformat(self._clock.now())

    async def zone(self) -> tzinfo:
        return await asyncio.to_thread(load_zone, self._settings.zone)

    async def openings(self) -> Openings | None:
        settings = self._settings
        if not (settings.open or settings.freeze):
            return None
        return await asyncio.to_thread(openings_of, settings.open, settings.freeze, settings.zone)

    async def turn(self, openings: Openings, needed: timedelta, now: datetime) -> HostTurn:
        # Many windows of a month take some time.
        return await asyncio.to_thread(self._turn, openings, needed, now)

    async def listing(self, count: int) -> dict[str, Any]:
        """Return the answer of `nodeagent windows`. Raises ``InvalidInput`` (``TimeZoneUnknown``)."""
        settings = self._settings
        openings = await asyncio.to_thread(openings_of, settings.open, settings.freeze, settings.zone)
        estimates = {work: await self.estimate(work) for work in Work}
        count = min(max(count, 1), MOST)
        listed = await asyncio.to_thread(listing, openings, self.terms, estimates, self.now(), count)
        return {"schema": SCHEMA, "source": "daemon", "zone": settings.zone, **listed}

    async def estimate(self, work: Work) -> Estimate:
        # Each attempt asks, and an entry has up to 100 kB.
        if (version := self._store.history_version()) != self._version:
            entries = await self._store.history(SEARCHED)
            self._estimates = {kind: estimate(entries, kind) for kind in Work}
            self._version = version
        return self._estimates[work]
