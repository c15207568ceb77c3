# SPDX-License-Identifier: Apache-2.0
"""Maintenance: an operator holds the lease of this host, with the node drained or the host powered off on request.

One task (``MaintenanceManager.run``) carries it out: acquire, drain, power off or hold, release. Each change is in the
store before its effect, so that a restart and a reboot continue from it; a request only changes what is stored. If the
lease is taken away, the maintenance ends, and our cordon is removed when the node is free.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Final

from nodeagent.core.backoff import jittered
from nodeagent.core.coordination.operations import is_by_operator
from nodeagent.core.times import add_seconds, seconds_until
from nodeagent.errors import AgentError, Refused, ServiceUnavailable
from nodeagent.features.maintenance.decide import (
    NOTE,
    POWER_OFF_TRIES,
    Maintenance,
    MaintenanceRequest,
    MaintenanceState,
    from_text,
    held_message,
    of_lease,
    to_text,
)
from nodeagent.features.maintenance.events import MaintenanceChanged
from nodeagent.features.maintenance.reasons import MaintenanceReason
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.tasks import finished_before, pause, running
from nodeagent.update.ports.events import UpdateWaiting, Warned
from nodeagent.update.ports.host import Reporter
from nodeagent.update.ports.store import Notes
from nodeagent.update.ports.system import ShutdownKind
from nodeagent.update.run import Ports, UpdatePolicy
from nodeagent.update.stages.coordination import Operation
from nodeagent.update.stages.drain import MIN_DRAIN
from nodeagent.update.stages.reboot import Shutdown, go_down

# Seconds between two checks of the lease while nothing is to be done. Each step checks it as well.
POLL: Final = 60.0

# Seconds after which a request is answered, even if the lease does not answer.
ANSWER: Final = 60.0

# Reasons with which the lease was taken away. One that expired while the API server was down is acquired again.
_TAKEN_AWAY: Final = frozenset({Reason.LEASE_LOST, Reason.LEASE_GIVEN_BACK, Reason.LEASE_HELD})

# Reasons that an operator has to act on: the maintenance continues without that step, and a request retries it.
_GIVEN_UP: Final = frozenset(
    {
        Reason.DRAIN_TIMED_OUT,
        Reason.DRAIN_REFUSED,
        Reason.DRAIN_CANCELED,
        Reason.POWER_OFF_BLOCKED,
        MaintenanceReason.POWER_OFF_FAILED,
    }
)


@dataclass(eq=False)
class MaintenanceManager:
    """``limits`` returns the present ones. ``on_release`` is called when the lease is free again.

    ``random`` is a number from 0 to 1 at each call.
    """

    ports: Ports
    notes: Notes
    reporter: Reporter
    _: KW_ONLY
    limits: Callable[[], UpdatePolicy]
    on_release: Callable[[], None]
    random: Callable[[], float] = random.random
    _current: Maintenance | None = field(default=None, init=False)
    # Operation for which this process acquired the lease.
    _acquired: str = field(default="", init=False)
    # Operation that ends if it cannot begin at once.
    _immediate: str = field(default="", init=False)
    # Error of the last step.
    _error: AgentError | None = field(default=None, init=False)
    # The last error, as the status shows it.
    _waits: str = field(default="", init=False)
    # Steady time since which a service of this host has not answered.
    _unavailable_since: float | None = field(default=None, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # Held from the read of the current maintenance until its successor is in the store.
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    # Requests.

    async def start(self, caller: str, request: MaintenanceRequest) -> Maintenance:
        """Return when the maintenance has begun; with ``wait``, when it is stored.

        Raises ``Refused`` (``LeaseHeld``, ``NoCluster``, ``MaintenanceEnding``), ``InvalidInput``, and what the lease
        raises; then nothing is left of the request.
        """
        request.check()
        if request.drain and self.ports.node is None:
            raise Refused(
                "this host is in no cluster, so there is nothing to drain", reason=MaintenanceReason.NO_CLUSTER
            )
        name = request.requester.strip() or caller
        # The caller is authenticated by the bus, the requester is only a text, so both are recorded.
        name = name if name == caller else f"{name} (by {caller})"
        async with self._changing:
            before = self._current
            wanted = self._wanted(before, name, request)
            await self._put(wanted, f"requested by {wanted.words}")
            if before is not None:
                # The lease must last until another time.
                self._acquired = ""
            else:
                # Without --wait the request fails at once if the lease has another holder.
                self._immediate = "" if request.wait else wanted.operation
                self._error = None
        self._wake.set()
        # The task does the work, so that a client that disconnects does not interrupt it.
        await self._wait_for(
            lambda: self._current is None or bool(self._current.began or (self._waits and not self._immediate))
        )
        if (self._current is None or self._current.ended) and self._error is not None:
            raise self._error
        return self._current or wanted

    async def stop(self, caller: str) -> None:
        """Return when the lease is released.

        Raises ``Refused`` (``NoMaintenance``), and ``Retryable`` (``MaintenanceEnding``) if the release continues in
        the background.
        """
        if self._current is None:
            raise Refused("no maintenance is in progress", reason=MaintenanceReason.NO_MAINTENANCE)
        self._error = None
        if not self._current.ended:
            await self._change("", ended=f"stopped by {caller}")
        self._wake.set()
        await self._wait_for(lambda: self._current is None or self._error is not None)
        self._check_released()

    def _check_released(self) -> None:
        if self._current is not None:
            message = self._error.message if self._error is not None else f"no answer within {ANSWER:g} s"
            raise Refused(
                f"the maintenance is ending; the agent retries: {message}", reason=MaintenanceReason.MAINTENANCE_ENDING
            )

    def _wanted(self, before: Maintenance | None, name: str, request: MaintenanceRequest) -> Maintenance:
        now = self.ports.clock.now()
        until = add_seconds(now, request.seconds) if request.seconds else ""
        if before is None:
            about = (uuid.uuid4().hex[:8], name, request.reason.strip(), now)
            return Maintenance(*about, until=until, drain=request.drain, power_off=request.power_off)
        if before.ended:
            raise Refused(
                f"the previous maintenance is still ending: {self._waits}", reason=MaintenanceReason.MAINTENANCE_ENDING
            )
        # The same requester may change the request. Another one waits, as for any other holder.
        if before.requester != name:
            raise Refused(held_message(before), reason=Reason.LEASE_HELD)
        return before.again(until=until, drain=request.drain, power_off=request.power_off)

    async def _wait_for(self, condition: Callable[[], bool]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER):
                while not condition():
                    await self._changed.wait()

    # The task.

    async def load(self) -> None:
        """Load the stored maintenance, before an update can take the lease."""
        maintenance = from_text(await self.notes.note(NOTE))
        # A damaged row of the lease is read as one of an unknown requester, who ends it like any other.
        if maintenance is None and self.ports.coordination.lease.backend == "local":
            holder = await self.ports.coordination.lease.holder()
            if holder is not None and is_by_operator(holder.operation):
                maintenance = of_lease(holder.operation, holder.name, holder.reason, holder.since)
        if maintenance is not None:
            self._use(maintenance, "")

    async def run(self) -> None:
        while True:
            self._wake.clear()
            delay = await self._advance()
            await pause(delay, self._wake)

    async def _advance(self) -> float | None:
        """Do what can be done now. Return the seconds until the next attempt; None: at the next request."""
        clock = self.ports.clock
        try:
            while (current := self._current) is not None and await self._step(current):
                self._waits = ""
            self._unavailable_since = None
        except AgentError as error:
            self._error = error
            since = clock.monotonic() if self._unavailable_since is None else self._unavailable_since
            self._unavailable_since = since if isinstance(error, ServiceUnavailable) else None
            again = False
            # If the store accepts no writes, the error stays, and the next attempt retries.
            with suppress(AgentError):
                again = await self._failed(error)
            self._notify()
            # What it waits for may be the same on many hosts.
            retry = jittered(self.limits().lease_retry, self.random())
            return None if self._current is None else 0.0 if again else retry
        if (current := self._current) is None:
            return None
        remaining = seconds_until(current.until, clock.now())
        return POLL if remaining is None else max(0.0, min(POLL, remaining))

    async def _step(self, current: Maintenance) -> bool:
        """Do the work of the present state. Return False if there is none, or a request interrupted it."""
        remaining = seconds_until(current.until, self.ports.clock.now())
        state = current.state(self.ports.power.boot_id())
        if state is MaintenanceState.ENDING:
            await self._release(current)
            return True
        # The end is checked before the beginning: a request that waited beyond its time does not begin.
        if remaining is not None and remaining <= 0:
            await self._change("", only=current, ended="its time is over")
            return True
        # After a restart of the daemon, or with another end, the lease is acquired again for the same operation.
        if state is MaintenanceState.PLANNED or self._acquired != current.operation:
            await self._acquire(current, remaining)
            return True
        await self.ports.coordination.lease.check(current.operation)
        work = {MaintenanceState.DRAINING: self._drain, MaintenanceState.POWERING_OFF: self._power_off}.get(state)
        return work is not None and await self._unless_requested(work(current))

    async def _acquire(self, current: Maintenance, remaining: float | None) -> None:
        await self.ports.coordination.acquire(_operation(current))
        await self.ports.coordination.extend_lease(current.operation, remaining)
        self._acquired = current.operation
        if not current.began:
            self._immediate = ""
            await self._change(f"begun: {current.words}", began=self.ports.clock.now())

    async def _drain(self, current: Maintenance) -> None:
        node, now = self.ports.node, self.ports.clock.now()
        assert node is not None
        await self.ports.coordination.check_others(stops_node=current.power_off)
        # A drain that has begun goes on.
        if not current.drain_by:
            await self.ports.coordination.permit_begin(_operation(current))
        by = current.drain_by or add_seconds(now, self.limits().drain_timeout)
        # The deadline is stored, so that a restart does not extend it.
        if not current.drain_by:
            await self._change("", drain_by=by)
        await node.drain(current.operation, max(seconds_until(by, now) or 0.0, MIN_DRAIN))
        await self._change("the node is drained", drained=self.ports.clock.now())

    async def _power_off(self, current: Maintenance) -> None:
        """Power the host off. The boot that is to end is stored first, so that the next boot is the way back up."""
        # A host that cannot power off is reported, and stays in maintenance.
        if current.tries >= POWER_OFF_TRIES:
            raise Refused(
                f"requested a power-off {current.tries} times without effect", reason=MaintenanceReason.POWER_OFF_FAILED
            )
        ports, limits, coordination = self.ports, self.limits(), self.ports.coordination
        # Before a drain the same was checked, and its pods are gone.
        if not (current.drain or current.tries):
            await coordination.permit_begin(_operation(current))
        away = self._unavailable_since
        # Without logind no program reports inhibitors; systemd powers the host off without it.
        direct = away is not None and ports.clock.monotonic() - away >= limits.service_wait

        async def permit() -> None:
            await coordination.check_others(stops_node=True)
            await coordination.before_stop()
            await coordination.extend_lease(current.operation, seconds_until(current.until, ports.clock.now()))
            await self._change("powering off", off_boot=ports.power.boot_id())

        async def confirm() -> None:
            await coordination.recheck(_operation(current))

        def blocked(_kind: type[Warned | UpdateWaiting], message: str, _reason: AnyReason) -> None:
            self._waits = message
            self._emit(message)

        power_off = Shutdown(ShutdownKind.POWER_OFF, current.operation, permit, confirm)
        await go_down(ports, limits, power_off, current.words, report=blocked, direct=direct)
        # Only an accepted power-off counts: a logind that does not answer does not prove that the host cannot go off.
        await self._change("powering off", tries=current.tries + 1)
        # The shutdown takes time. A second request would count as another attempt.
        await asyncio.sleep(limits.reboot_grace)

    async def _release(self, current: Maintenance) -> None:
        await self.ports.coordination.release(_operation(current), (current.operation,) if current.drain else ())
        await self.notes.keep_note(NOTE, "")
        self._current, self._acquired, self._waits = None, "", ""
        # From here on updates may take the lease again.
        self.ports.coordination.reserve("", "")
        self._emit(f"over: {current.ended}")
        self.on_release()

    async def _failed(self, error: AgentError) -> bool:
        """Decide what an error means for the maintenance. Return True if there is another step to do at once."""
        current, message = self._current, str(error.cause)
        if current is None:
            return False
        if not current.ended:
            if self._immediate == current.operation:
                # A request that cannot begin at once ends, because its client has the error as the answer.
                # Also if nothing was acquired: a write without an answer may have been done.
                await self._change("", only=current, ended=message)
                self._immediate = ""
                return True
            if current.began and error.reason in _TAKEN_AWAY:
                await self._change(message, only=current, ended=message)
                return True
            if self._acquired == current.operation and error.reason in _GIVEN_UP:
                await self._change(message, only=current, problem=message)
                return True
        if message != self._waits:
            self._waits = message
            self._emit(message)
        return False

    async def _unless_requested(self, work: Coroutine[Any, Any, None]) -> bool:
        """Return True if ``work`` was done. A request cancels it, because it may have changed the maintenance."""
        # The drain and the wait before a power-off take long. A new request must not wait for them.
        async with running(work) as task:
            if not await finished_before(task, self._wake):
                return False
            task.result()
            return True

    # The stored maintenance.

    async def _change(self, message: str, *, only: Maintenance | None = None, **fields: Any) -> None:
        """Change the current maintenance; with ``only``, unless a request has replaced that one."""
        async with self._changing:
            current = self._current
            if current is not None and (only is None or current is only):
                await self._put(replace(current, **fields), message)

    async def _put(self, wanted: Maintenance, message: str) -> None:
        """Store and use ``wanted``. The caller holds ``_changing``."""
        # First the store: a maintenance that it does not take must not block updates.
        await self.notes.keep_note(NOTE, to_text(wanted))
        self._use(wanted, message)

    def _use(self, wanted: Maintenance, message: str) -> None:
        self._current = wanted
        self.ports.coordination.reserve(wanted.operation, held_message(wanted))
        self._emit(message)

    def _emit(self, message: str) -> None:
        self.reporter.emit(MaintenanceChanged(self._current, self._waits, message))
        self._notify()

    def _notify(self) -> None:
        # A new event for each change wakes every waiting client exactly once.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _operation(current: Maintenance) -> Operation:
    return Operation(
        current.operation,
        current.requester,
        current.reason,
        queued=False,
        stops_node=current.power_off,
        stops_pods=current.drain or current.power_off,
    )
