# SPDX-License-Identifier: Apache-2.0
"""The loop: level-triggered. It compares the desired config with the current one, does what is needed, and sleeps until
something changes. What an update depends on is in the store; the loop itself remembers what was reported.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from nodeagent import log
from nodeagent.core.boot import kernel_boot
from nodeagent.core.plan.steps import ActStep
from nodeagent.errors import (
    AgentError,
    InvalidInput,
    Retryable,
    ServiceUnavailable,
    Unreconcilable,
    full_text,
)
from nodeagent.tasks import pause
from nodeagent.update import keeper
from nodeagent.update.course import AFTER_BOOT, Restart
from nodeagent.update.decide import resume
from nodeagent.update.history.ends import finish_request
from nodeagent.update.history.lasting import Confirmation
from nodeagent.update.history.outcome import UpdateOutcome
from nodeagent.update.machine import Executor, RunResult
from nodeagent.update.next.cancelling import Cancelled, request_cancellation
from nodeagent.update.next.desired import DesiredReader
from nodeagent.update.next.idle import Load
from nodeagent.update.next.next_update import NextUpdate
from nodeagent.update.next.preflight import Desired, Preflight
from nodeagent.update.next.requested_reboot import begin_reboot
from nodeagent.update.next.requests import close_interrupted, unusable
from nodeagent.update.next.staged_plan import PlanStaging
from nodeagent.update.next.unmerged import leave_unmerged
from nodeagent.update.next.unreadable import is_unreadable, rebuild, set_aside
from nodeagent.update.ports.events import ConfigRefused, PhaseEntered, UpdateResumed, Warned
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.record import (
    Record,
    degraded_record,
    in_effect,
    interrupted,
)
from nodeagent.update.run import Ports, Update, UpdatePolicy, narrate
from nodeagent.update.stages.after_boot import record_clean_shutdown
from nodeagent.update.stages.failure import abort, bug
from nodeagent.update.states import INTERRUPTED, Phase, Transition, Unreleased
from nodeagent.update.wait import CONFIG, FAULT, STORE, Pauses, Waiting, wait_of

# Seconds until a requested reboot is tried again that cannot begin now.
REQUEST_RETRY = 30.0


class Loop:
    """``desired`` reads the desired config (None: there is none yet). ``at_rest`` is awaited when there is nothing to
    do, and returns the seconds until the next check. ``complete`` as in ``DesiredSource``; None: the config is a file
    of this host.
    """

    def __init__(
        self,
        ports: Ports,
        policy: UpdatePolicy,
        preflight: Preflight,
        *,
        desired: Callable[[], Awaitable[Desired | None]],
        load: Callable[[str], Awaitable[Desired]],
        adopted: Callable[[], Awaitable[Desired | None]],
        random: Callable[[], float],
        renew: Callable[[ActStep], Awaitable[None]],
        at_rest: Callable[[], Awaitable[float | None]] | None = None,
        complete: Callable[[str], bool] | None = None,
    ) -> None:
        self.ports = ports
        self._renew = renew
        self._at_rest = at_rest
        # The desired config may have changed during an update.
        self._update_wake = asyncio.Event()
        self.desired = DesiredReader(ports, desired)
        self._next_update = NextUpdate(ports, preflight, self.desired, load=load, adopted=adopted, complete=complete)
        newer, safe_first = self.desired.superseded, self._next_update.safe_first
        self.executor = Executor(ports, policy, newer, self._update_wake, random, safe_first)
        self._plans = PlanStaging(
            ports, self.desired, self._next_update.check, lambda: self.policy, self._update_wake, random
        )
        self._load = load
        self._wake = asyncio.Event()
        # The desired config may have changed while an update is under way.
        self._changed = asyncio.Event()
        self._refused, self._stuck_since = "", ""
        # A passing fault is not reported as a refusal at once.
        self._faults, self._refusals, self._store = Pauses(FAULT, random), Pauses(CONFIG, random), Pauses(STORE, random)
        self._waits = Waiting(ports, lambda: self.policy, None, random)

    @property
    def policy(self) -> UpdatePolicy:
        return self.executor.policy

    def reload(self, policy: UpdatePolicy, preflight: Preflight) -> None:
        """Use these from the next step on."""
        self.executor.policy = policy
        self._next_update.preflight = preflight

    async def stopping(self) -> None:
        """To be called when this process is about to end."""
        if self.executor.reboot_accepted:
            await record_clean_shutdown(self.ports)

    def wake(self) -> None:
        """Take another turn, with the delays of the present one."""
        self._wake.set()

    def look_again(self) -> None:
        """The desired config may have changed."""
        self._refusals.forget()
        self._update_wake.set()
        self._changed.set()
        self._wake.set()

    @contextlib.asynccontextmanager
    async def recorded(self, request: ApplyRequest, desired: Desired | None = None) -> AsyncIterator[None]:
        """Inside, the desired config is made the one of ``request``, which is in the store by then. Given ``desired``,
        the end of what was requested is reported."""
        async with self.desired.recorded(request, desired):
            yield
        self.look_again()

    async def run(self) -> None:
        """Never return. A fault of the store, or a bug outside of a phase, is reported and retried from the record, as
        after a restart."""
        resumed = stuck = False
        while True:
            # Cleared before the turn, so that a change during the turn is not slept over.
            self._wake.clear()
            try:
                if not resumed:
                    await self.resume()
                    resumed = True
                delay = await self.turn()
                if stuck:
                    record = await self.ports.store.load()
                    narrate(self.ports, record, PhaseEntered, record.message, record.reason)
                stuck = False
                self._store.forget()
            except AgentError as error:
                delay, stuck, resumed = self._stuck(error), True, False
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not become a loop of restarts
                delay, stuck, resumed = self._stuck(bug(self.ports.reporter, error, "the main loop")), True, False
            await pause(delay, self._wake)

    def _stuck(self, error: AgentError) -> float | None:
        text = full_text(error, 5)
        again = f"{error.reason} {text}" == self._refused
        if not again:
            self._refused, self._stuck_since = f"{error.reason} {text}", self.ports.clock.now()
        # Each time: what was resumed in between has set the status.
        record = degraded_record(since=self._stuck_since)
        narrate(self.ports, record, ConfigRefused, text, error.reason, again)
        return self._store.next()

    async def resume(self) -> None:
        """Continue the update of the record. Raise for a record that is not understood, unless an operator requested an
        update: then it is set aside."""
        await leave_unmerged(self.ports, self.policy)
        try:
            update = await resumed_update(self.ports, self._load, self.desired, self.executor)
            if update is not None:
                await self._run(update)
        except AgentError as error:
            if not (self.desired.requested and is_unreadable(error)):
                raise
            self.desired.requested = False
            await set_aside(self.ports, error)

    async def cancel(self, who: str, put_back: Callable[[str], Awaitable[None]]) -> Cancelled:
        """Cancel the update under way, as ``request_cancellation`` describes. Its end is reported afterwards.

        While the OS is staged for a plan, no update is under way. That staging has ended when this returns.
        """
        if (staging := await self._plans.cancel(who)) is not None:
            self.wake()
            return staging
        answer = await request_cancellation(self.ports, self.desired, self.executor.update, who, put_back)
        self.look_again()
        return answer

    async def check(self, desired: Desired, confirmed: Confirmation | None = None) -> Update:
        """Return the update to this config, or raise why it would be refused. Changes nothing on the host."""
        return await self._next_update.check(desired, confirmed)

    async def stage(self, desired: Desired) -> Update:
        """Stage the OS of the update to this config without beginning it, as ``PlanStaging.stage`` describes."""
        try:
            return await self._plans.stage(desired)
        finally:
            # A staging that is not complete is discarded in the next turn.
            self.wake()

    async def turn(self) -> float | None:
        """Seconds until the next check; None: only when something changes."""
        async with self._plans.alone:
            return await self._turn()

    async def _turn(self) -> float | None:
        record = self._waits.record = await self._plans.tidy(await self.ports.store.load())
        if isinstance(record.leg, Unreleased):
            return await self._release(record)
        if (reboot := await self._requested_reboot(record, at_once=True)) is not None:
            return await self._run_and_judge(reboot)
        self._waits.begin()
        try:
            # Cleared before the config is read: a change during the read sets it again, and the update notices.
            self._update_wake.clear()
            update = await self._next_update.begin(record)
        except AgentError as error:
            if isinstance(error, InvalidInput | Unreconcilable):
                await self._refuse(record, error)
                # The same input gives the same answer.
                return await self._without_update(None)
            if isinstance(error, ServiceUnavailable) and not self._waits.overdue:
                return self._waits.report(wait_of(error))
            if isinstance(error, Retryable) and (seconds := self._faults.next()) is not None:
                narrate(self.ports, record, Warned, f"{error}; looking again", error.reason)
                return seconds
            await self._refuse(record, error)
            return await self._without_update(self._refusals.next())
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not become a loop of restarts
            await self._refuse(record, bug(self.ports.reporter, error, "the preparation of an update"))
            return self._refusals.next()
        # A config was found, so the same refusal later is news again.
        self._refused = ""
        self._faults.forget()
        self._waits.end()
        if update is None:
            return await self._without_update(await self._at_rest() if self._at_rest is not None else None)
        return await self._run_and_judge(update)

    async def _without_update(self, delay: float | None) -> float | None:
        """Begin the reboot that is requested, if it may begin. Otherwise return ``delay``, or less."""
        reboot = await self._requested_reboot(await self.ports.store.load(), at_once=False)
        if reboot is not None:
            return await self._run_and_judge(reboot)
        pending = self.ports.reboot_requests.pending() is not None
        return min(delay or REQUEST_RETRY, REQUEST_RETRY) if pending else delay

    async def _requested_reboot(self, record: Record, *, at_once: bool) -> Update | None:
        """Begin the reboot that is requested. None if there is none that may begin now."""
        requested = self.ports.reboot_requests.pending()
        if requested is None or (at_once and not requested.at_once):
            return None
        # The desired config may change from here on.
        self._update_wake.clear()
        beside = self._next_update.wanted
        update = await begin_reboot(self.ports, self._load, record, requested, self.executor.attempt)
        if update is not None:
            # What is refused is reported again afterwards.
            self._refused = ""
            update.beside = beside.source.digest if beside is not None else ""
        return update

    async def _run_and_judge(self, update: Update) -> float | None:
        safe = bool(update.record.safe_for)
        outcome = await self._run(update)
        if outcome is RunResult.DEGRADED and (safe or self.ports.offer.is_on):
            # The rest of the config, or of a rejected one what may repair the host, follows.
            return 0.0
        if outcome is RunResult.PUT_OFF:
            if not safe and await self._next_update.put_off(update):
                return 0.0
            # The watch reports a file that was written again with the same config: no reason to retry at once.
            if await self.ports.store.request() is None and not await self.desired.superseded(update):
                self._wake.clear()
            return self._refusals.next()
        return 0.0 if outcome in (RunResult.ENDED, RunResult.UNRELEASED) else None

    async def _release(self, record: Record) -> float | None:
        """Retry to give back what an update holds that has ended. Nothing else begins before that."""
        update = await rebuild(record, self._load)
        if record.phase is not Phase.RELEASING:
            await self.executor.enter(update, Transition(Phase.RELEASING, None, record.reason, record.message))
        await self._run(update)
        return self._refusals.next() if update.ended else 0.0

    async def _run(self, update: Update) -> RunResult:
        digest = update.digest
        # The end of an update that is already reported is no answer to a newer request for the same config.
        self.desired.requests.running = "" if update.ended else digest
        request = await self.ports.store.request()
        if request is not None and request.cancel:
            # Recorded before a restart.
            self._update_wake.set()
        following = asyncio.create_task(self._follow())
        try:
            while True:
                with log.context(update_id=update.record.update_id, phase=str(update.record.phase)):
                    outcome = await self.executor.run(update)
                if outcome is RunResult.ENDED and update.own is not None:
                    store = self.ports.store
                    if in_effect(await store.load(), await store.current()) == digest:
                        await self._renew(update.own)
                if outcome is not RunResult.REBOOTING:
                    return outcome
                # logind accepted the reboot. If the host does not go down, the executor requests it again, a few times.
                await asyncio.sleep(self.policy.reboot_grace)
        finally:
            # A config whose safe parts come first has no end yet.
            if self._next_update.blocked is None or self._next_update.blocked.digest != digest:
                self.desired.requests.forget(self.desired.requests.running)
            self.desired.requests.running = ""
            self.desired.report_again()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self) -> None:
        """Keeps the status true about what is desired while an update to something else is under way."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            with contextlib.suppress(AgentError):
                self.desired.report(await self.desired.read())

    async def _refuse(self, record: Record, error: AgentError) -> None:
        """The host is as it was, but it is not what is desired: that is Degraded, with the reason."""
        text = full_text(error, 5)
        wanted = self._next_update.wanted
        name, digest = (wanted.config.name, wanted.source.digest) if wanted else ("", "")
        if interrupted(record) and digest != record.to_digest:
            record = await close_interrupted(self.ports, record, unusable(error))
        if self._refused != (words := f"{error.reason} {text}"):
            record = await keeper.refuse(self.ports, replace(record, to_name=name), error.reason, text)
            # Only now: if the store does not accept the record, nothing was reported yet.
            self._refused = words
            if wanted is not None:
                self.desired.report(wanted)
        elif digest not in self.desired.requests:
            return
        if digest:
            self.desired.requests.forget(digest)
            finish_request(self.ports, name, digest, UpdateOutcome.REFUSED, error.reason, text)


async def resumed_update(ports: Ports, load: Load, desired: DesiredReader, executor: Executor) -> Update | None:
    """Return the update of the record, in the phase from which the executor continues; None at rest.

    Raises ``AgentError`` for a record that cannot be read.
    """
    record = await ports.store.load()
    decision = resume(record, ports.power.boot_id())
    if decision in (Restart.IDLE, Restart.DEGRADED):
        return None
    # This is for the status only. The problems of the config are found at its turn.
    with contextlib.suppress(AgentError):
        desired.report(await desired.read())
    update = await rebuild(record, load)
    boot_id = ports.power.boot_id()
    rebooted = record.boot_id != boot_id
    # A soft reboot keeps the boot id of the kernel and starts all services again.
    softly = rebooted and kernel_boot(record.boot_id) == kernel_boot(boot_id)
    how = f"{decision.value}, after a soft reboot" if softly else decision.value
    update.narrate(ports, UpdateResumed, how)
    match decision:
        case Restart.START_OVER:
            message = "interrupted before any change; restarting"
            await executor.enter(update, abort(INTERRUPTED, message))
        case Restart.VERIFY | Restart.REVERT | Restart.STAGE if rebooted:
            await executor.enter_after_boot(update, AFTER_BOOT[decision])
        case _:
            # The executor continues from the phase of the record.
            pass
    return update
