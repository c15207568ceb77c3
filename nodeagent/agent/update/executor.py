"""The one executor: takes an update from its phase to the next until it is done, reverted, degraded, or the host
goes down.

Each phase is a function of its own that does the work and answers where to go; this module alone moves the record,
and saves it before anything relies on it. It knows ports only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum
from functools import partial

from nodeagent.agent.update import (
    actions,
    admission,
    after_boot,
    boot_health,
    contested,
    draining,
    staging,
    verification,
    writing,
)
from nodeagent.agent.update.admission import NotNow, Waiting, reboots
from nodeagent.agent.update.bugs import bug
from nodeagent.agent.update.finishing import finish_update
from nodeagent.agent.update.os_deployments import Os, discard_ours
from nodeagent.agent.update.outages import Outage
from nodeagent.agent.update.outcomes import INTERRUPTED, OUTCOMES, abandon, at_end, degraded, failed
from nodeagent.agent.update.progress import progress_of
from nodeagent.agent.update.reboot import reboot
from nodeagent.agent.update.run import Limits, Next, Ports, Takeover, Update, narrate
from nodeagent.core.plan.deployment import OsTarget
from nodeagent.core.report.history import entry_of, seconds_between
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.phase import BY_PROGRESS, DEADLINE, UNTOUCHED, Phase
from nodeagent.core.update.record import IllegalTransition, Record, advance, at_rest, lasting, same_update
from nodeagent.core.update.resume import MAX_REBOOT_TRIES
from nodeagent.errors import AgentError, Retryable, ServiceUnavailable, Terminal

__all__ = ["Executor", "Outcome"]

PHASE_TRIES = 3
PHASE_PAUSE = 2.0
"""How often a phase that met a passing fault is done, and the seconds between two tries."""


class Outcome(Enum):
    ENDED = "ended"  # done, or nothing was written and something else is desired
    PUT_OFF = "put off"  # nothing was touched; the same may succeed later
    REBOOTING = "rebooting"
    DEGRADED = "degraded"


class Executor:
    """``superseded`` says whether there is a newer desired config than the update's; ``look`` makes us ask. ``chance``
    is a random number from 0 to 1 at each call."""

    def __init__(
        self,
        ports: Ports,
        limits: Limits,
        superseded: Callable[[Update], Awaitable[bool]],
        chance: Callable[[], float],
    ) -> None:
        self.ports = ports
        self.limits = limits
        self.look = asyncio.Event()  # set by the loop: the desired config may have changed meanwhile
        self.asked_to_reboot = False  # and logind said yes
        self._superseded = superseded
        self._chance = chance
        self._began = ports.clock.monotonic()
        self._work: dict[Phase, Callable[[Update], Awaitable[Next]]] = {
            Phase.STAGING: self._staging,
            Phase.LEASING: self._leasing,
            Phase.DRAINING: self._draining,
            Phase.WRITING: self._writing,
            Phase.ACTING: self._acting,
            Phase.VERIFYING: self._verifying,
            Phase.REVERTING: self._reverting,
            Phase.RELEASING: self._releasing,
        }

    async def run(self, update: Update) -> Outcome:
        """From the phase in the record on. Cancelling it at any await leaves a record that ``resume`` understands."""
        while True:
            match update.record.phase:
                case Phase.IDLE:
                    return Outcome.ENDED
                case Phase.DEGRADED:
                    if update.record.unreleased:
                        return Outcome.PUT_OFF
                    return Outcome.DEGRADED if update.record.rejected == update.record.to_digest else Outcome.PUT_OFF
                case Phase.REBOOTING:
                    if (blocked := await self._unless_bug(update, self._rebooting(update))) is None:
                        return Outcome.REBOOTING
                    await self.enter(update, blocked)
                case phase:
                    if (to := await self._unless_bug(update, self._one(phase, update))) is not None:
                        await self.enter(update, to)

    async def _unless_bug(self, update: Update, work: Awaitable[Next | None]) -> Next | None:
        """Next(Degraded) where ``work`` raises what no adapter gives."""
        try:
            return await work
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not become a loop of restarts
            found = bug(error, update.record.phase)
            return degraded(self.ports, update, found.message, found.reason)

    async def _one(self, phase: Phase, update: Update) -> Next:
        waiting, outage = self._waits(update)
        while True:
            limit = asyncio.timeout(DEADLINE[phase])
            update.progressed = partial(_postpone, limit, phase)
            try:
                async with outage.attempt(limit), limit:
                    return await self._patiently(phase, update)
            except (NotNow, ServiceUnavailable) as error:  # a phase that waits is not late
                if isinstance(error, NotNow):
                    await waiting.pause(error)
                else:
                    await outage.pause(error, self.look)
                    update.repeated = True
                if update.record.acted or phase not in UNTOUCHED:
                    self.look.clear()
                elif await self._newer(update):
                    return await self._abandon(update)
            except TimeoutError:
                if not limit.expired():
                    raise
                how = "made no progress for" if phase in BY_PROGRESS else "took more than"
                late = f"{phase} {how} {DEADLINE[phase]} s"
                return await self._failed(update, late, "PhaseLate", curable=True)
            except AgentError as error:
                curable = isinstance(error, actions.ActionFailed) or getattr(error, "curable", False)
                return await self._failed(update, str(error), error.reason, curable=curable)

    def _waits(self, update: Update) -> tuple[Waiting, Outage]:
        waiting = Waiting(self.ports, self.limits, update, self.look, self._chance)
        return waiting, Outage(self.ports, self.limits, update, self._chance)

    async def _failed(self, update: Update, message: str, reason: str, *, curable: bool) -> Next:
        return await failed(self.ports, self.limits, update, message, reason, curable=curable)

    async def _patiently(self, phase: Phase, update: Update) -> Next:
        """A passing fault of the host is no reason to revert: every phase may be done again."""
        tries = 1 if phase is Phase.STAGING else PHASE_TRIES  # a registry needs longer pauses, and has them there
        for _ in range(tries - 1):
            try:
                return await self._work[phase](update)
            except ServiceUnavailable:
                raise  # has pauses of its own
            except Retryable as error:
                narrate(self.ports, update, EventKind.WARNING, f"trying again: {error}", reason=error.reason)
                await asyncio.sleep(PHASE_PAUSE)
        return await self._work[phase](update)

    async def enter(self, update: Update, to: Next) -> None:
        """Marker before effect: the record is on the disk before the phase starts."""
        if to.phase is Phase.DEGRADED and update.record.cordon and self.ports.node is not None:
            advice = await self.ports.node.advice()
            to = replace(to, message="; ".join(filter(None, (to.message, advice))))
        now, boot_id = self.ports.clock.now(), self.ports.power.boot_id()
        try:
            record = advance(update.record, to.phase, now=now, boot_id=boot_id, reason=to.reason, message=to.message)
        except IllegalTransition as error:
            await self.stop(update, error)
            return
        budget = record.budget.counted(boot_id, self.ports.clock.monotonic(), self._began)
        if to.phase is Phase.REBOOTING and record.fallback and not record.reverting:
            budget = budget.spend()
        record = replace(record, budget=budget)
        if to.phase is Phase.WRITING and not record.wrote_boot:
            record = replace(record, wrote_boot=boot_id)
        if to.phase is Phase.DRAINING:
            until = self.ports.clock.monotonic() + self.limits.drain_timeout
            record = replace(record, cordon=record.cordon or record.operation, drain_until=until)
        if to.phase is Phase.IDLE:
            rest = at_rest(record) if record.given_up else Record(**lasting(record))
            if record.given_up == INTERRUPTED:
                rest = same_update(rest, record)
            record = replace(rest, since=now, boot_id=boot_id, reason=to.reason, message=to.message)
        await (to.save or self.ports.store.save)(record)
        good = not update.record.given_up and not update.record.reverting
        if good and (to.phase is Phase.IDLE or record.unreleased) and not update.ended:
            self._tell_done(update)
        ended, update.record = update.record, record
        kind = EventKind.DEGRADED if to.phase is Phase.DEGRADED else EventKind.PHASE
        narrate(self.ports, update, kind, to.message, reason=to.reason)
        if update.ended:
            return
        if to.phase is Phase.DEGRADED or (to.phase is Phase.IDLE and ended.given_up != INTERRUPTED):
            await finish_update(self.ports, ended, update.plan, to)

    async def stop(self, update: Update, error: IllegalTransition) -> None:
        """A bug of ours must not become a loop of restarts: the update ends where it is, the lease is kept, and the
        config is not applied again without a request."""
        if update.record.phase is Phase.DEGRADED:
            raise error
        await self.enter(update, degraded(self.ports, update, f"a bug in nodeagent: {error}", error.reason))

    def _tell_done(self, update: Update) -> None:
        record = update.record
        after = (f"after a fallback reboot, because {record.fallback}",) if record.fallback else ()
        how = "; ".join((*after, *record.notes))
        seconds = seconds_between(record.started, self.ports.clock.now())
        narrate(
            self.ports,
            update,
            EventKind.UPDATE_DONE,
            how,
            seconds=seconds,
            reboots=record.reboots,
            digest=record.to_digest,
        )

    # Phases, in the order of an update.

    async def _staging(self, update: Update) -> Next:
        os, target, record = self.ports.os, update.target, update.record
        if os is None or target is None:
            raise Terminal("the deployments of this host cannot be reached any more", reason="NoDeployments")
        if record.acted:  # the node is out of service by now: it does not queue again
            if not update.repeated:  # an attempt that no service answered was no attempt to stage
                await after_boot.before_staging_again(self.ports, update)
            await self._stage(update, os, target)
            return Next(Phase.REBOOTING, "Planned", f"rebooting into {record.to_name}")
        await admission.acquire_staging_slot(self.ports, update)
        try:
            staged = await self._stage(update, os, target)
        except AgentError:
            await admission.release_staging_slot(self.ports, update)
            raise
        await admission.release_staging_slot(self.ports, update)
        return Next(Phase.LEASING) if staged else await self._abandon(update)

    async def _stage(self, update: Update, os: Os, target: OsTarget) -> bool:
        return await staging.stage(
            self.ports, self.limits, update, os, target, look=self.look, newer=lambda: self._newer(update)
        )

    async def _newer(self, update: Update) -> bool:
        if not self.look.is_set():
            return False
        self.look.clear()
        return await self._superseded(update)

    async def _abandon(self, update: Update) -> Next:
        if self.ports.os is not None and update.target is not None:
            try:
                await discard_ours(self.ports.os, update.record)
                update.record = replace(update.record, os_target=None, staged="", staged_boot="")
            except AgentError as error:  # the record at rest keeps what is ours; the loop discards it later
                narrate(self.ports, update, EventKind.WARNING, str(error), reason=error.reason)
        return abandon(update, update.takeover or Takeover("Superseded", "another config is desired now"))

    async def _leasing(self, update: Update) -> Next:
        if await self._newer(update):
            return await self._abandon(update)
        await admission.acquire_all(self.ports, self.limits, update)
        return Next(Phase.DRAINING) if update.plan.drain and self.ports.node else await self._to_writing(update)

    async def _draining(self, update: Update) -> Next:
        record, work = update.record, draining.drain(self.ports, self.limits, update)
        if record.acted:
            left = await work
            return Next(Phase.REBOOTING, record.reason, left or record.message)
        with admission.retry_on_outage():
            try:
                left = await draining.unless_newer(work, self.look, lambda: self._newer(update))
            except draining.Superseded:
                return await self._abandon(update)
        await admission.recheck_before_write(self.ports, update)
        if left and not reboots(update):
            update.record = replace(record, fallback=left)
        if left:
            narrate(self.ports, update, EventKind.FALLBACK, left, reason="DrainTimedOut")
        return await self._to_writing(update)

    async def _to_writing(self, update: Update) -> Next:
        update.record = replace(update.record, before=await actions.states_before(self.ports, update))
        return Next(Phase.WRITING)

    async def _writing(self, update: Update) -> Next:
        await writing.write(self.ports, update)
        update.record = replace(update.record, acted=True)
        return Next(Phase.ACTING)

    async def _acting(self, update: Update) -> Next:
        update.index = len(update.writes)
        if update.record.fallback:  # what could not be moved away goes down with the host, not with a service
            return Next(Phase.REBOOTING, "DrainTimedOut", update.record.fallback)
        await actions.act(self.ports, self.limits, update, actions.unit_steps(update))
        if reboots(update):
            await boot_health.look_before(self.ports, update)
            return Next(Phase.REBOOTING, "Planned", f"rebooting into {update.record.to_name}")
        return Next(Phase.VERIFYING)

    async def _verifying(self, update: Update) -> Next:
        record, os, target = update.record, self.ports.os, update.target
        progress = progress_of(self.ports, update)
        if os is not None and target is not None:
            limit = self.ports.clock.monotonic() + self.limits.verify_timeout
            if not update.repeated:  # then the status says why it waits
                progress("waiting for rpm-ostreed to report what is booted", limit)
            if record.reverting:
                await after_boot.still_old(self.ports, self.limits, update, os)
            elif (again := await after_boot.after_boot(self.ports, self.limits, update, os, target)) is not None:
                return again
            elif (again := await after_boot.after_merge(self.ports, update)) is not None:
                return again  # before units are judged: they may have failed for the want of it
        await verification.watch_units(
            self.ports,
            self.limits,
            actions.unit_steps(update),
            rebooted=record.reboots > 0,
            skipped=record.skipped,
            well=record.well,
            before=record.before,
            progress=progress,
            excused=update.repeated,
        )
        if reboots(update) and record.reboots:
            await boot_health.watch_boot(self.ports, self.limits, update, progress)
        now = self.ports.clock.now()
        if record.reverting:
            entry = entry_of(record, update.plan, now, "reverted", record.revert_reason, record.rejected_why)
            return Next(Phase.RELEASING, save=lambda after: self.ports.store.close_update(after, entry))
        wrong, loose = await contested.divide(
            self.ports, update.new, await verification.mismatches(self.ports, update.new)
        )
        contested.report(self.ports, loose, record)
        if target is not None:
            wrong |= await verification.os_mismatches(self.ports, update.new)
        if wrong:
            some = "; ".join(f"{entry}: {why}" for entry, why in sorted(wrong.items())[:5])
            raise verification.VerifyFailed(f"{len(wrong)} not as desired: {some}")
        outcome = "done-after-fallback" if record.fallback else "done"
        entry = entry_of(record, update.plan, now, outcome, record.fallback, "; ".join(record.notes))
        return Next(Phase.RELEASING, save=lambda after: self.ports.store.promote(after, record.to_digest, entry))

    async def _rebooting(self, update: Update) -> Next | None:
        """None when the host is going down. Marker before effect: the boot id was saved on entering."""
        record, (waiting, outage) = update.record, self._waits(update)
        if record.tries >= MAX_REBOOT_TRIES:
            return degraded(self.ports, update, f"asked for {MAX_REBOOT_TRIES} reboots, none came", "RebootFailed")
        update.record = replace(record, left_boot="")
        await self.ports.store.save(update.record)
        self.asked_to_reboot = False
        while True:
            try:
                async with outage.attempt():
                    await reboot(self.ports, self.limits, update, direct=outage.overdue)
            except NotNow as error:
                if record.fallback and not record.reverting and not reboots(update):
                    # Going back needs no reboot, so there is no reason to stay half-way for.
                    return await self._failed(update, error.message, error.reason, curable=False)
                await waiting.pause(error)
                self.look.clear()
            except ServiceUnavailable as error:
                await outage.pause(error, self.look)
                self.look.clear()
            except AgentError as error:
                if error.reason == "StagedLost":
                    return await self._stage_again(update, str(error))
                return degraded(self.ports, update, str(error), error.reason)
            else:
                self.asked_to_reboot = True
                # Only a reboot that was accepted counts: a logind that does not answer is no host that cannot reboot.
                update.record = replace(update.record, tries=update.record.tries + 1)
                await self.ports.store.save(update.record)
                return None

    async def _stage_again(self, update: Update, why: str) -> Next:
        try:
            return after_boot.stage_again(self.ports, update, why)
        except verification.VerifyFailed as error:
            return await self._failed(update, str(error), error.reason, curable=False)

    async def _reverting(self, update: Update) -> Next:
        narrate(self.ports, update, EventKind.REVERTING, update.record.rejected_why, reason=update.record.revert_reason)
        os, target = self.ports.os, update.target
        if os is not None and target is not None:
            reboot_first = await after_boot.back_to_old(self.ports, self.limits, update, os)
            if reboot_first is not None:
                return reboot_first
        await writing.restore(self.ports, update)
        record = update.record = replace(update.record, restored=True)
        if record.os_target is not None:
            # Whatever started in this boot may have read what was just taken back.
            stale = bool(record.writes) and record.wrote_boot != self.ports.power.boot_id()
            return Next(Phase.REBOOTING, "Reverting") if stale else Next(Phase.VERIFYING)
        if not record.acted:
            return Next(Phase.VERIFYING)
        if reboots(update):
            # What the new config needed a reboot for, the old one needs it for as well, if it came so far.
            return Next(Phase.REBOOTING, "Reverting") if update.record.reboots else Next(Phase.VERIFYING)
        update.index = len(update.writes)
        await actions.act(self.ports, self.limits, update, actions.unit_steps(update))
        return Next(Phase.VERIFYING)

    async def _releasing(self, update: Update) -> Next:
        if not update.record.given_up:
            await writing.forget_originals(self.ports, update)
        await admission.release_all(self.ports, update)
        if update.record.given_up in OUTCOMES and not update.ended and not await self._superseded(update):
            # Its config is desired again: the update begins again, and a client that waits for it gets that end.
            update.record = replace(update.record, given_up=INTERRUPTED, successor="")
        return at_end(self.ports, update)


def _postpone(limit: asyncio.Timeout, phase: Phase) -> None:
    seconds = DEADLINE[phase]
    if phase in BY_PROGRESS and seconds is not None and not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + seconds)
