# SPDX-License-Identifier: Apache-2.0
"""Waiting: what an update or the loop waits for, how long, and what it reports during that time.

A refusal of another holder, a service without an answer and a transient fault are each a ``Wait``. None of them says
anything about the config, so the phase is repeated, and the deadline of the phase does not count while it waits.

A service of the host (the bus, systemd, logind, rpm-ostreed) that is away for ``UpdatePolicy.service_wait`` seconds
makes the host degraded; the phase continues as soon as the service answers. The record keeps the phase, so a restarted
agent continues it as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeVar

from nodeagent.core.backoff import delays, jittered
from nodeagent.core.once import Once
from nodeagent.errors import AgentError, OutOfTurn, Refused, Retryable, ServiceUnavailable, Unreachable
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.tasks import pause
from nodeagent.update.ports.events import HostDegraded, PhaseEntered, UpdateContext, UpdateWaiting, Warned
from nodeagent.update.record import Record
from nodeagent.update.run import Ports, Run, Update, UpdatePolicy, context_of, narrate
from nodeagent.update.stages.coordination import EXPIRED, LOST
from nodeagent.update.states import Phase

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between two attempts: ``first``, doubled up to ``longest``. ``tries``: attempts in a row, after which it
    has failed; None: without end."""

    first: float
    longest: float
    tries: int | None = None


# A call that may succeed a moment later.
FAULT: Final = Pace(2.0, 2.0, tries=3)

# A registry that is restarted is back by then. After a longer outage, the loop tries again with its own pauses.
REGISTRY: Final = Pace(30.0, 300.0, tries=5)

# A service of the host: one that was restarted is back within two or three seconds.
SERVICE: Final = Pace(2.0, 30.0)

# A config that was refused, or not staged, for a reason that may pass.
CONFIG: Final = Pace(30.0, 3600.0)

# A store that failed.
STORE: Final = Pace(2.0, 60.0)

# Seconds. Another holder is waited for with ``UpdatePolicy.lease_retry`` at first. One that releases its lease wakes no
# other host, so this bounds how long the lease stays unused.
LONGEST_FOR_HOLDER: Final = 60.0

# In a queue the longest pause grows to this part of the time that the host has waited, so that thousands that wait do
# not ask more often than their server can answer. Of so many, one asks soon after a slot is free nevertheless.
PART_OF_QUEUE: Final = 1 / 60
LONGEST_IN_QUEUE: Final = 300.0

# Seconds without a fault after which the status no longer names the service. Most calls fail sooner.
OVER: Final = 60.0

# Seconds without a fault after which the next one begins another outage. The longest call fails sooner.
FORGOTTEN: Final = 600.0

# Reasons with which a service that is restarted fails at once; the first of these is only a warning.
PASSING: Final = frozenset({Reason.BUS_CONNECTION_LOST, Reason.NO_REPLY})


@dataclass(frozen=True, slots=True)
class Wait:
    """Why the update cannot continue now.

    ``after``: seconds after which it can; None if that is unknown. ``subject`` is what is waited for; "" for a fault,
    whose words differ with each attempt. ``service`` is the service of this host that does not answer, "" if it is not
    that. ``whole``: the message says when or how it continues. ``brief`` is as in ``OutOfTurn``, "" outside of a queue.
    """

    reason: AnyReason
    message: str
    after: float | None = None
    subject: str = ""
    service: str = ""
    whole: bool = False
    brief: str = ""


class NotNow(AgentError):
    """Raised where a ``Wait`` is found below a stage."""

    def __init__(
        self,
        message: str,
        *,
        reason: AnyReason,
        after: float | None = None,
        subject: str | None = None,
        whole: bool = False,
        brief: str = "",
    ) -> None:
        super().__init__(message, reason=reason)
        self.wait = Wait(reason, message, after, message if subject is None else subject, whole=whole, brief=brief)


class Delayed(NotNow):
    """An operator delays the update, and the message says until when. Nothing of the config is applied before."""

    def __init__(self, message: str, *, reason: AnyReason, after: float | None) -> None:
        super().__init__(message, reason=reason, after=after, whole=True)


def wait_of(error: NotNow | ServiceUnavailable) -> Wait:
    if isinstance(error, NotNow):
        return error.wait
    return Wait(error.reason, str(error), service=error.service or "a service of this host")


@contextlib.contextmanager
def retry_on_refusal() -> Iterator[None]:
    """Turn refusals and outages into ``NotNow``, except for those that end the update."""
    try:
        yield
    except NotNow:
        raise
    except AgentError as error:
        # A lease that was taken away stays lost: waiting for it would disrupt a node that belongs to another operation.
        if error.reason in LOST:
            raise
        raise _not_now(error) from error


@contextlib.contextmanager
def retry_on_outage() -> Iterator[None]:
    """Turn outages into ``NotNow``, and let refusals pass."""
    try:
        yield
    except (Refused, Unreachable, Retryable) as error:
        # An expired lease is a kind of outage, as it expires only where no renewal reached the API server.
        if isinstance(error, Refused) and error.reason != EXPIRED:
            raise
        raise _not_now(error) from error


def _not_now(error: AgentError) -> NotNow:
    if isinstance(error, OutOfTurn):
        return NotNow(error.message, reason=error.reason, subject=error.brief, brief=error.brief)
    # A refusal names the holder, which is worth a line each time.
    subject = (error.subject or error.message) if isinstance(error, Refused) else ""
    return NotNow(error.message, reason=error.reason, subject=subject)


class Pauses:
    """The pauses between the attempts of one thing. ``random`` is a number from 0 to 1 at each call."""

    def __init__(self, pace: Pace, random: Callable[[], float]) -> None:
        self._pace, self._random = pace, random
        self.forget()

    def forget(self) -> None:
        """Begin again with the first pause."""
        self._delays = delays(self._pace.first, self._pace.longest)
        self._left = self._pace.tries

    def next(self, longest: float = inf) -> float | None:
        """Return the seconds until the next attempt, ``longest`` at most; None if there were too many."""
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                return None
        return jittered(min(next(self._delays), longest), self._random())


async def retry(
    run: Run,
    work: Callable[[], Awaitable[T]],
    pace: Pace,
    on_failure: Callable[[Retryable, float], None] | None = None,
) -> T:
    """Return what ``work`` returns, after as many attempts as its transient faults take.

    ``on_failure`` reports a fault, with the seconds until the next attempt, in place of a line of the journal.
    """
    pauses = Pauses(pace, run.random)
    while True:
        try:
            return await work()
        except ServiceUnavailable:
            # A fault of the bus is Retryable too, and the machine waits for the service.
            raise
        except Retryable as error:
            seconds = pauses.next()
            if seconds is None:
                raise
            if on_failure is None:
                run.narrate(Warned, f"trying again: {error}", reason=error.reason)
            else:
                on_failure(error, seconds)
            await asyncio.sleep(seconds)


@dataclass(eq=False)
class Waiting:
    """The waits of one phase of ``update``, or of the search for the next update if that is None.

    ``random`` is a number from 0 to 1 at each call.
    """

    ports: Ports
    # The settings may change while it waits.
    policy: Callable[[], UpdatePolicy]
    update: Update | None
    random: Callable[[], float]
    # The record for reports without an update.
    record: Record = field(default_factory=Record, init=False)
    # Whether the last wait was for a service, which repeats the phase.
    repeats: bool = field(default=False, init=False)
    # Start of the attempt, on the steady clock.
    _attempt: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._shown = Once[tuple[str, str]]()
        self._message = Once[str]()
        self._subject = Once[tuple[str, str]]()
        self._holder = Pauses(Pace(0.0, 0.0), self.random)
        # Since when it waits for the subject.
        self._queued = 0.0
        self._outage = Pauses(SERVICE, self.random)
        self._forget()

    @property
    def overdue(self) -> bool:
        """Whether the service has been away for so long that the host is degraded."""
        away = self.ports.clock.monotonic() - self._since
        return self._faults > 0 and away >= self.policy().service_wait

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

    async def pause(self, wait: Wait, wake: asyncio.Event) -> None:
        """Report ``wait``, and sleep until the next attempt. ``wake`` ends the pause early."""
        self.repeats = bool(wait.service)
        await pause(self.report(wait), wake)

    def report(self, wait: Wait) -> float:
        """Report what is waited for, each once. Returns the seconds until the next attempt."""
        return self._service(wait) if wait.service else self._other(wait)

    def end(self) -> None:
        """Report that the services answer again."""
        self._over()
        self._forget()

    def _other(self, wait: Wait) -> float:
        news = self._shown.is_new((wait.reason, wait.brief or (wait.message if wait.subject else "")))
        changed = self._message.is_new(wait.message) and bool(wait.brief)
        if news or changed:
            then = "" if wait.whole else "; the update continues when that is over"
            message = wait.message + then
            self._emit(UpdateWaiting(self._about(), message, wait.reason, wait.brief, routine=not news))
        # The output of a check may differ each time, and it fails nevertheless as before.
        if self._subject.is_new((wait.reason, wait.subject)):
            first, self._queued = self.policy().lease_retry, self.ports.clock.monotonic()
            longest = LONGEST_IN_QUEUE if wait.brief else LONGEST_FOR_HOLDER
            self._holder = Pauses(Pace(first, max(longest, first)), self.random)
        seconds = self._holder.next(self._longest()) or 0.0
        return seconds if wait.after is None else min(seconds, wait.after)

    def _longest(self) -> float:
        waited = self.ports.clock.monotonic() - self._queued
        return max(self.policy().lease_retry, LONGEST_FOR_HOLDER, waited * PART_OF_QUEUE)

    def _service(self, wait: Wait) -> float:
        if self.ports.clock.monotonic() - self._attempt >= FORGOTTEN:
            self._forget()
        if not self._faults:
            self._since, self._since_text = self.ports.clock.monotonic(), self.ports.clock.now()
        self._faults += 1
        if self._faults == 1 and wait.reason in PASSING:
            narrate(self.ports, self._record, Warned, f"trying again: {wait.message}", wait.reason)
        else:
            self._report_outage(wait)
        return self._outage.next() or 0.0

    def _report_outage(self, wait: Wait) -> None:
        kind = HostDegraded if self.overdue else UpdateWaiting
        if not self._reported.is_new((kind, wait.service, wait.reason)):
            return
        message = f"waiting for {wait.service}, which has not answered since {self._since_text}: {wait.message}"
        about = context_of(self.ports, self._record, Phase.DEGRADED if self.overdue else self._record.phase)
        self._emit(kind(about, message, wait.reason))

    def _forget(self) -> None:
        self._faults = 0
        # Time of the first fault.
        self._since, self._since_text = 0.0, ""
        self._reported = Once[tuple[type[HostDegraded | UpdateWaiting], str, str]]()
        self._outage.forget()

    def _over(self) -> None:
        if self._reported.forget():
            record = self._record
            self._emit(PhaseEntered(self._about(), record.message, record.reason))

    @property
    def _record(self) -> Record:
        return self.update.record if self.update is not None else self.record

    def _about(self) -> UpdateContext:
        return context_of(self.ports, self._record, self._record.phase)

    def _emit(self, event: HostDegraded | UpdateWaiting | PhaseEntered) -> None:
        if self.update is not None and not (isinstance(event, UpdateWaiting) and event.routine):
            self.update.note(self.ports, event)
        self.ports.reporter.emit(event)
