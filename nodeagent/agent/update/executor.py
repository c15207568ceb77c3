"""The one executor: takes an update from its phase to the next until it is done, reverted, degraded, or the host goes
down.

Each phase is a function that does the work and returns where to go; this module alone moves the record, and saves it
before anything relies on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum
from functools import partial

from nodeagent.agent.update import actions
from nodeagent.agent.update.admission import NotNow, Waiting
from nodeagent.agent.update.bugs import bug
from nodeagent.agent.update.finishing import finish_update
from nodeagent.agent.update.outages import Outage
from nodeagent.agent.update.outcomes import degraded, failed
from nodeagent.agent.update.phases import PHASES, superseded
from nodeagent.agent.update.reboot import request_reboot
from nodeagent.agent.update.run import Close, Ports, Promote, Run, Transition, Update, UpdatePolicy, narrate
from nodeagent.core.report.history import seconds_between
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.legs import INTERRUPTED, Apply, Fallback, Prepare, Unreleased
from nodeagent.core.update.phase import BY_PROGRESS, DEADLINE, Phase
from nodeagent.core.update.record import IllegalTransition, Record, advance
from nodeagent.errors import AgentError, Retryable, ServiceUnavailable
from nodeagent.reasons import Reason

__all__ = ["Executor", "RunResult"]

PHASE_TRIES = 3
PHASE_PAUSE = 2.0
"""How often a phase that met a passing fault is done, and the seconds between two tries."""


class RunResult(Enum):
    ENDED = "ended"  # done, or nothing was written and another config is desired
    PUT_OFF = "put off"  # nothing was changed; the same may succeed later
    REBOOTING = "rebooting"
    DEGRADED = "degraded"


class Executor:
    """``superseded`` returns whether there is a newer desired config than that of the update, and ``wake`` is set when
    there may be one. ``random`` is a number from 0 to 1 at each call."""

    def __init__(
        self,
        ports: Ports,
        policy: UpdatePolicy,
        superseded: Callable[[Update], Awaitable[bool]],
        wake: asyncio.Event,
        random: Callable[[], float],
    ) -> None:
        self.policy = policy
        self.phases = dict(PHASES)
        self._ports = ports
        self._superseded = superseded
        self._wake = wake
        self._random = random
        self._began = ports.clock.monotonic()
        self._update: Update | None = None

    @property
    def reboot_accepted(self) -> bool:
        """Whether the host goes down because this process requested it."""
        return self._update is not None and self._update.reboot_accepted

    async def run(self, update: Update) -> RunResult:
        """Go on from the phase in the record. Cancelled at any await, it leaves one that ``resume`` understands."""
        self._update = update
        while True:
            match update.record.phase:
                case Phase.IDLE:
                    return RunResult.ENDED
                case Phase.DEGRADED:
                    rejected = update.record.lasting.failed_digest == update.digest
                    return RunResult.DEGRADED if rejected and not update.ended else RunResult.PUT_OFF
                case Phase.REBOOTING:
                    if (blocked := await self._unless_bug(update, self._reboot(update))) is None:
                        return RunResult.REBOOTING
                    await self.enter(update, blocked)
                case _:
                    if (to := await self._unless_bug(update, self._one(update))) is not None:
                        await self.enter(update, to)

    def _run(self, update: Update) -> Run:
        """The policy may change between two attempts of a phase."""
        return Run(self._ports, self.policy, update, self._wake, self._superseded)

    async def _unless_bug(self, update: Update, work: Awaitable[Transition | None]) -> Transition | None:
        """End the update where ``work`` raises what no adapter does."""
        try:
            return await work
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not become a loop of restarts
            found = bug(error, update.record.phase)
            return degraded(self._run(update), found.message, found.reason)

    async def _one(self, update: Update) -> Transition:
        """Return where the present phase leads, after as many attempts as its waits take."""
        phase, free = update.record.phase, isinstance(update.record.leg, Prepare)
        waiting, outage = self._waits(update)
        while True:
            limit = asyncio.timeout(DEADLINE[phase])
            update.progressed = partial(_postpone, limit, phase)
            run = self._run(update)
            try:
                async with outage.attempt(limit), limit:
                    return await self._attempt(run)
            except (NotNow, ServiceUnavailable) as error:  # a phase that waits is not late
                if isinstance(error, NotNow):
                    await waiting.pause(error)
                else:
                    await outage.pause(error, self._wake)
                    update.repeated = True
                if not free:
                    self._wake.clear()
                elif await run.newer():
                    return await superseded(run)
            except TimeoutError:
                if not limit.expired():
                    raise
                how = "made no progress for" if phase in BY_PROGRESS else "took more than"
                late = f"{phase} {how} {DEADLINE[phase]} s"
                return await failed(run, late, Reason.PHASE_LATE, curable=True)
            except AgentError as error:
                curable = isinstance(error, actions.ActionFailed) or getattr(error, "curable", False)
                return await failed(run, str(error), error.reason, curable=curable)

    def _waits(self, update: Update) -> tuple[Waiting, Outage]:
        waiting = Waiting(self._ports, self.policy, update, self._wake, self._random)
        return waiting, Outage(self._ports, self.policy, update, self._random)

    async def _attempt(self, run: Run) -> Transition:
        """A passing fault of the host is no reason to revert: every phase may be done again."""
        phase = run.record.phase
        work = self.phases[type(run.record.leg), phase]
        tries = 1 if phase is Phase.STAGING else PHASE_TRIES  # a registry needs longer pauses, and has them there
        for _ in range(tries - 1):
            try:
                return await work(run)
            except ServiceUnavailable:
                raise  # has pauses of its own
            except Retryable as error:
                run.narrate(EventKind.WARNING, f"trying again: {error}", reason=error.reason)
                await asyncio.sleep(PHASE_PAUSE)
        return await work(run)

    async def _reboot(self, update: Update) -> Transition | None:
        """Return None when the host is going down."""
        waiting, outage = self._waits(update)
        while True:
            run = self._run(update)
            try:
                async with outage.attempt():
                    return await request_reboot(run, direct=outage.overdue)
            except NotNow as error:
                await waiting.pause(error)
            except ServiceUnavailable as error:
                await outage.pause(error, self._wake)
            self._wake.clear()

    async def enter(self, update: Update, to: Transition) -> None:
        """Move the record. Marker before effect: it is on the disk before the phase starts."""
        if to.phase is Phase.DEGRADED and update.record.cordon and self._ports.node is not None:
            advice = await self._ports.node.advice()
            to = replace(to, message="; ".join(filter(None, (to.message, advice))))
        before = update.record
        try:
            record = self._advanced(before, to)
        except IllegalTransition as error:
            await self.stop(update, error)
            return
        await self._save(record, to)
        if before.phase is Phase.RELEASING and isinstance(before.leg, Apply | Fallback):
            self._report_done(update)
        update.record = record
        kind = EventKind.DEGRADED if to.phase is Phase.DEGRADED else EventKind.PHASE
        narrate(self._ports, update, kind, to.message, reason=to.reason)
        if isinstance(before.leg, Unreleased):
            return  # its end was reported before
        again = before.aborted is not None and before.aborted.reason == INTERRUPTED
        if to.phase is Phase.DEGRADED or (to.phase is Phase.IDLE and not again):
            await finish_update(self._ports, before, update.plan, to)

    def _advanced(self, before: Record, to: Transition) -> Record:
        clock, boot_id = self._ports.clock, self._ports.power.boot_id()
        leg = before.leg if to.leg is None else to.leg
        record = advance(
            before,
            to.phase,
            leg,
            now=clock.now(),
            boot_id=boot_id,
            reason=to.reason,
            message=to.message,
        )
        budget = record.lasting.budget.counted(boot_id, clock.monotonic(), self._began)
        if to.phase is Phase.REBOOTING and isinstance(leg, Fallback):
            budget = budget.spend()
        record = replace(record, lasting=replace(record.lasting, budget=budget))
        if to.phase is Phase.DRAINING:
            until = clock.monotonic() + self.policy.drain_timeout
            record = replace(record, cordon=record.cordon or record.operation, drain_until=until)
        return record

    async def _save(self, record: Record, to: Transition) -> None:
        match to.commit:
            case Promote(entry):
                await self._ports.store.promote(record, record.to_digest, entry)
            case Close(entry):
                await self._ports.store.close_update(record, entry)
            case None:
                await self._ports.store.save(record)

    async def stop(self, update: Update, error: IllegalTransition) -> None:
        """End the update where it is: a bug of ours must not become a loop of restarts. The lease is kept, and the
        config is not applied again without a request."""
        if update.record.phase is Phase.DEGRADED:
            raise error
        await self.enter(update, degraded(self._run(update), f"a bug in nodeagent: {error}", error.reason))

    def _report_done(self, update: Update) -> None:
        record = update.record
        after = (f"after a fallback reboot, because {record.fallback}",) if record.fallback else ()
        narrate(
            self._ports,
            update,
            EventKind.UPDATE_DONE,
            "; ".join((*after, *record.notes)),
            seconds=seconds_between(record.started, self._ports.clock.now()),
            reboots=record.written.reboots,
            digest=record.to_digest,
        )


def _postpone(limit: asyncio.Timeout, phase: Phase) -> None:
    seconds = DEADLINE[phase]
    if phase in BY_PROGRESS and seconds is not None and not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + seconds)
