"""Waiting for a service of this host (the bus, systemd, logind, rpm-ostreed) that does not answer.

A service without an answer says nothing about the config, so the phase waits and is repeated. A lasting fault is the
reason in the status. After ``UpdatePolicy.service_wait`` seconds the host is reported as degraded, and the phase
continues as soon as the service answers. The record keeps the phase, so a restarted agent continues it as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from nodeagent.core.backoff import delays, jittered
from nodeagent.core.once import Once
from nodeagent.errors import ServiceUnavailable
from nodeagent.reasons import Reason
from nodeagent.update.events import HostDegraded, PhaseEntered, UpdateWaiting, Warned
from nodeagent.update.phase import Phase
from nodeagent.update.record import Record
from nodeagent.update.run import Ports, Update, UpdatePolicy, context_of, narrate

# Seconds between two attempts, doubled each time: a service that was restarted is back within two or three.
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 30.0

# Seconds without a fault after which the status no longer names the service. Most calls fail sooner.
OVER: Final = 60.0

# Seconds without a fault after which the next one begins another outage. The longest call fails sooner.
FORGOTTEN: Final = 600.0

# Reasons with which a service that is restarted fails at once; the first of these is only a warning.
PASSING: Final = frozenset({Reason.BUS_CONNECTION_LOST, Reason.NO_REPLY})


@dataclass(eq=False)
class Outage:
    """The outages within one phase of ``update``, or of the search for the next update if that is None.

    ``random`` is a number from 0 to 1 at each call.
    """

    ports: Ports
    policy: UpdatePolicy
    update: Update | None
    random: Callable[[], float]
    # The record for reports without an update.
    record: Record = field(default_factory=Record, init=False)
    # Start of the attempt, on the steady clock.
    _attempt: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._forget()
        if self.update is not None:
            self.update.repeated = False

    @property
    def overdue(self) -> bool:
        """Whether the service has been away for so long that the host is degraded."""
        away = self.ports.clock.monotonic() - self._since
        return self._faults > 0 and away >= self.policy.service_wait

    def begin(self) -> None:
        """Record the start of an attempt."""
        self._attempt = self.ports.clock.monotonic()

    @contextlib.asynccontextmanager
    async def attempt(self, limit: asyncio.Timeout) -> AsyncIterator[None]:
        """Wrap an attempt. One that lasts for ``OVER`` seconds removes the service from the status.

        Raises ``ServiceUnavailable`` if ``limit``, which is inside, expires while systemd does not answer either.
        """
        self.begin()
        timer = asyncio.get_running_loop().call_later(OVER, self._over)
        try:
            yield
        except TimeoutError:
            if limit.expired():
                await self.ports.units.boot_finished()
            raise
        finally:
            timer.cancel()

    def report(self, error: ServiceUnavailable) -> float:
        """Report the fault of an attempt. Returns the seconds until the next attempt."""
        if self.ports.clock.monotonic() - self._attempt >= FORGOTTEN:
            self._forget()
        if not self._faults:
            self._since, self._since_text = self.ports.clock.monotonic(), self.ports.clock.now()
        self._faults += 1
        self._emit(error)
        return jittered(next(self._pauses), self.random())

    def end(self) -> None:
        """Report that the services answer again."""
        self._over()
        self._forget()

    def _forget(self) -> None:
        self._faults = 0
        # Time of the first fault.
        self._since, self._since_text = 0.0, ""
        self._reported = Once[tuple[type[HostDegraded | UpdateWaiting], str, str]]()
        self._pauses = delays(FIRST_PAUSE, LONGEST_PAUSE)

    def _emit(self, error: ServiceUnavailable) -> None:
        record = self._record
        if self._faults == 1 and error.reason in PASSING:
            text = f"trying again: {error}"
            narrate(self.ports, record, Warned, text, error.reason)
            return
        kind = HostDegraded if self.overdue else UpdateWaiting
        if not self._reported.is_new((kind, error.service, error.reason)):
            return
        service = error.service or "a service of this host"
        message = f"waiting for {service}, which has not answered since {self._since_text}: {error}"
        about = context_of(self.ports, record, Phase.DEGRADED if self.overdue else record.phase)
        self._report(kind(about, message, error.reason))

    def _over(self) -> None:
        if self._reported.forget():
            record = self._record
            about = context_of(self.ports, record, record.phase)
            self._report(PhaseEntered(about, record.message, record.reason))

    @property
    def _record(self) -> Record:
        return self.update.record if self.update is not None else self.record

    def _report(self, event: HostDegraded | UpdateWaiting | PhaseEntered) -> None:
        if self.update is not None:
            self.update.note(self.ports, event)
        self.ports.reporter.emit(event)
