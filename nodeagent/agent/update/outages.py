"""Waiting for a service of this host (the bus, systemd, logind, rpm-ostreed) that does not answer.

That a service does not answer says nothing about the config, so the phase waits and is done again: each phase may be
repeated. A fault that lasts is the reason in the status. After ``UpdatePolicy.service_wait`` seconds the host is
reported as degraded, and the phase goes on as soon as the service answers; the record keeps the phase, so a restarted
agent goes on with it as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from nodeagent.agent.update.run import Ports, Update, UpdatePolicy, narrate
from nodeagent.core.backoff import delays, jittered
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.record import Record
from nodeagent.errors import ServiceUnavailable
from nodeagent.reasons import Reason

__all__ = ["Outage"]

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 30.0
"""Seconds between two attempts, doubled each time: a service that was restarted is back within two or three."""

OVER: Final = 60.0
"""Seconds without a fault after which the status no longer names the service. Most calls fail sooner."""

FORGOTTEN: Final = 600.0
"""Seconds without a fault after which the next one begins another outage. The longest call fails sooner."""

PASSING: Final = frozenset({Reason.BUS_CONNECTION_LOST, Reason.NO_REPLY})
"""Reasons with which a service that is restarted fails at once; the first of these is only a warning."""


class Outage:
    """The outages within one phase of ``update``; without one, of the search for the next update.

    ``chance`` is a random number from 0 to 1 at each call.
    """

    def __init__(self, ports: Ports, policy: UpdatePolicy, update: Update | None, chance: Callable[[], float]) -> None:
        self.record = Record()  # what is reported without an update
        self._ports = ports
        self._policy = policy
        self._update = update
        self._chance = chance
        self._attempt = 0.0  # when it began, on the steady clock
        self._forget()
        if update is not None:
            update.repeated = False

    @property
    def overdue(self) -> bool:
        """Whether the service has been away for so long that the host is degraded."""
        away = self._ports.clock.monotonic() - self._since
        return self._faults > 0 and away >= self._policy.service_wait

    def begin(self) -> None:
        """An attempt begins."""
        self._attempt = self._ports.clock.monotonic()

    @contextlib.asynccontextmanager
    async def attempt(self, limit: asyncio.Timeout | None = None) -> AsyncIterator[None]:
        """Around each attempt: one that goes on for ``OVER`` seconds takes the service out of the status. Raises
        ``ServiceUnavailable`` if ``limit``, which is inside, expired while systemd does not answer either."""
        self.begin()
        timer = asyncio.get_running_loop().call_later(OVER, self._over)
        try:
            yield
        except TimeoutError:
            if limit is not None and limit.expired():
                await self._ports.units.boot_finished()
            raise
        finally:
            timer.cancel()

    async def pause(self, error: ServiceUnavailable, look: asyncio.Event) -> None:
        """Reports the fault of an attempt, and returns when it is time for the next. ``look`` ends the pause early."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.report(error)):
                await look.wait()

    def report(self, error: ServiceUnavailable) -> float:
        """Reports the fault of an attempt. Returns the seconds until the next attempt."""
        if self._ports.clock.monotonic() - self._attempt >= FORGOTTEN:
            self._forget()
        if not self._faults:
            self._since, self._since_text = self._ports.clock.monotonic(), self._ports.clock.now()
        self._faults += 1
        self._emit(error)
        return jittered(next(self._pauses), self._chance())

    def end(self) -> None:
        """The services answer again."""
        self._over()
        self._forget()

    def _forget(self) -> None:
        self._faults = 0
        self._since, self._since_text = 0.0, ""  # of the first fault
        self._reported: tuple[EventKind, str, str] | None = None
        self._pauses = delays(FIRST_PAUSE, LONGEST_PAUSE)

    def _emit(self, error: ServiceUnavailable) -> None:
        record = self._update.record if self._update is not None else self.record
        if self._faults == 1 and error.reason in PASSING:
            text = f"trying again: {error}"
            narrate(self._ports, self._update, EventKind.WARNING, text, reason=error.reason, record=record)
            return
        kind = EventKind.DEGRADED if self.overdue else EventKind.WAITING
        if (report := (kind, error.service, error.reason)) == self._reported:
            return
        self._reported = report
        service = error.service or "a service of this host"
        message = f"waiting for {service}, which has not answered since {self._since_text}: {error}"
        phase = Phase.DEGRADED if kind is EventKind.DEGRADED else None
        narrate(self._ports, None, kind, message, reason=error.reason, record=record, phase=phase)

    def _over(self) -> None:
        if self._reported is not None:
            self._reported = None
            record = self._update.record if self._update is not None else self.record
            narrate(self._ports, None, EventKind.PHASE, record.message, reason=record.reason, record=record)
