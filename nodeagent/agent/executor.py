"""The one executor: takes an update from its phase to the next until it is done, reverted, degraded, or the host
goes down.

Each phase is a function of its own that does the work and answers where to go; this module alone moves the record,
and saves it before anything relies on it. It knows ports only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum

from nodeagent.agent import acting, bootcheck, booting, staging, verify, writing
from nodeagent.agent.context import HOLDER, Limits, Next, Ports, Update, narrate
from nodeagent.agent.deployments import discard_ours
from nodeagent.agent.rebooting import reboot
from nodeagent.core.events import EventKind
from nodeagent.core.failure import Answer, after_failure
from nodeagent.core.history import entry_of, seconds_between
from nodeagent.core.phase import DEADLINE, Phase
from nodeagent.core.record import Record, advance, at_rest
from nodeagent.core.resume import MAX_REBOOT_TRIES
from nodeagent.core.steps import Reboot
from nodeagent.errors import AgentError, Refused, Retryable, Terminal

__all__ = ["Executor", "Outcome"]

SUPERSEDED = "Superseded"

PHASE_TRIES = 3
PHASE_PAUSE = 2.0
"""How often a phase that met a passing fault is done, and the seconds between two tries."""


class Outcome(Enum):
    DONE = "done"
    ABANDONED = "abandoned"  # nothing was written; there is a newer desired config
    PUT_OFF = "put off"  # nothing was touched; the same may succeed later
    REBOOTING = "rebooting"
    DEGRADED = "degraded"


class Executor:
    """``superseded`` says whether there is a newer desired config than the update's; ``look`` makes us ask."""

    def __init__(self, ports: Ports, limits: Limits, superseded: Callable[[Update], Awaitable[bool]]) -> None:
        self.ports = ports
        self.limits = limits
        self.look = asyncio.Event()  # set by the loop: the desired config may have changed meanwhile
        self._superseded = superseded
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
                    return Outcome.ABANDONED if update.record.reason == SUPERSEDED else Outcome.DONE
                case Phase.DEGRADED:
                    return Outcome.DEGRADED if update.record.rejected == update.record.to_digest else Outcome.PUT_OFF
                case Phase.REBOOTING:
                    if (blocked := await self._rebooting(update)) is None:
                        return Outcome.REBOOTING
                    await self.enter(update, blocked)
                case phase:
                    await self.enter(update, await self._one(phase, update))

    async def _one(self, phase: Phase, update: Update) -> Next:
        limit = asyncio.timeout(DEADLINE[phase])
        try:
            async with limit:
                return await self._patiently(phase, update)
        except TimeoutError:
            if not limit.expired():
                raise
            return self._failed(update, f"{phase} took more than {DEADLINE[phase]} s", "PhaseLate", curable=True)
        except AgentError as error:
            curable = isinstance(error, acting.ActionFailed) or getattr(error, "curable", False)
            return self._failed(update, str(error), error.reason, curable=curable)

    async def _patiently(self, phase: Phase, update: Update) -> Next:
        """A passing fault (the bus was restarted under us) is no reason to revert: every phase may be done again."""
        tries = 1 if phase is Phase.STAGING else PHASE_TRIES  # a registry needs longer pauses, and has them there
        for _ in range(tries - 1):
            try:
                return await self._work[phase](update)
            except Retryable as error:
                narrate(self.ports, update, EventKind.WARNING, f"trying again: {error}", reason=error.reason)
                await asyncio.sleep(PHASE_PAUSE)
        return await self._work[phase](update)

    async def enter(self, update: Update, to: Next) -> None:
        """Marker before effect: the record is on the disk before the phase starts."""
        now, boot_id = self.ports.clock.now(), self.ports.power.boot_id()
        record = advance(update.record, to.phase, now=now, boot_id=boot_id, reason=to.reason, message=to.message)
        if to.phase is Phase.WRITING and not record.wrote_boot:
            record = replace(record, wrote_boot=boot_id)
        if to.phase is Phase.IDLE:
            rest = at_rest(record) if to.reason == SUPERSEDED else Record(avoided=record.avoided)
            record = replace(rest, since=now, boot_id=boot_id, reason=to.reason, message=to.message)
        await (to.save or self.ports.store.save)(record)
        if to.phase is Phase.IDLE and to.reason != SUPERSEDED:
            self._tell_done(update)
        update.record = record
        kind = EventKind.DEGRADED if to.phase is Phase.DEGRADED else EventKind.PHASE
        narrate(self.ports, update, kind, to.message, reason=to.reason)

    def _tell_done(self, update: Update) -> None:
        record = update.record
        how = f"after a fallback reboot, because {record.fallback}" if record.fallback else ""
        seconds = seconds_between(record.started, self.ports.clock.now())
        narrate(self.ports, update, EventKind.UPDATE_DONE, how, seconds=seconds, reboots=record.reboots)

    # Phases, in the order of an update.

    async def _staging(self, update: Update) -> Next:
        os, target, record = self.ports.os, update.target, update.record
        if os is None or target is None:
            raise Terminal("the deployments of this host cannot be reached any more", reason="NoDeployments")
        if not await staging.stage(
            self.ports, self.limits, update, os, target, look=self.look, newer=lambda: self._newer(update)
        ):
            return await self._abandon(update)
        if record.acted:
            return Next(Phase.REBOOTING, "Planned", f"rebooting into {record.to_name}")
        return Next(Phase.LEASING)

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
        return Next(Phase.IDLE, SUPERSEDED, "a newer desired config is there; nothing was changed yet")

    async def _leasing(self, update: Update) -> Next:
        told = ""
        while not await self._newer(update):
            try:
                await self.ports.lease.acquire(HOLDER, update.record.update_id, f"update to {update.record.to_name}")
                return Next(Phase.DRAINING if update.plan.drain and self.ports.node else Phase.WRITING)
            except Refused as error:
                if str(error) != told:
                    narrate(self.ports, update, EventKind.WAITING, str(error), reason=error.reason)
                    told = str(error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.limits.lease_retry):
                    await self.look.wait()
        return await self._abandon(update)

    async def _draining(self, update: Update) -> Next:
        assert self.ports.node is not None
        await self.ports.node.drain(update.record.update_id, DEADLINE[Phase.DRAINING] or 0.0)
        return Next(Phase.WRITING)

    async def _writing(self, update: Update) -> Next:
        await writing.write(self.ports, update)
        update.record = replace(update.record, acted=True)
        return Next(Phase.ACTING)

    async def _acting(self, update: Update) -> Next:
        update.index = len(update.writes)
        await acting.act(self.ports, self.limits, update, acting.unit_steps(update))
        if _reboots(update):
            await bootcheck.look_before(self.ports, update)
            return Next(Phase.REBOOTING, "Planned", f"rebooting into {update.record.to_name}")
        return Next(Phase.VERIFYING)

    async def _verifying(self, update: Update) -> Next:
        record, os, target = update.record, self.ports.os, update.target
        if os is not None and target is not None:
            if record.reverting:
                await booting.still_old(self.ports, self.limits, update, os)
            elif (again := await booting.after_boot(self.ports, self.limits, update, os, target)) is not None:
                return again
            elif (again := await booting.after_merge(self.ports, update)) is not None:
                return again  # before units are judged: they may have failed for the want of it
        await verify.watch_units(
            self.ports,
            self.limits,
            acting.unit_steps(update),
            rebooted=record.reboots > 0,
            skipped=record.skipped,
            well=record.well,
        )
        if _reboots(update) and record.reboots:
            await bootcheck.watch_boot(self.ports, self.limits, update)
        now = self.ports.clock.now()
        if record.reverting:
            entry = entry_of(record, update.plan, now, "reverted", record.revert_reason, record.rejected_why)
            return Next(Phase.RELEASING, save=lambda after: self.ports.store.close_update(after, entry))
        wrong = await verify.mismatches(self.ports, update.new)
        if target is not None:
            wrong |= await verify.os_mismatches(self.ports, update.new)
        if wrong:
            some = "; ".join(f"{entry}: {why}" for entry, why in sorted(wrong.items())[:5])
            raise verify.VerifyFailed(f"{len(wrong)} not as desired: {some}")
        entry = entry_of(
            record, update.plan, now, "done-after-fallback" if record.fallback else "done", record.fallback
        )
        return Next(Phase.RELEASING, save=lambda after: self.ports.store.promote(after, record.to_digest, entry))

    async def _rebooting(self, update: Update) -> Next | None:
        """None when the host is going down. Marker before effect: the boot id was saved on entering."""
        tries = update.record.tries + 1
        if tries > MAX_REBOOT_TRIES:
            return self._degraded(update, f"asked for a reboot {MAX_REBOOT_TRIES} times, none came", "RebootFailed")
        update.record = replace(update.record, tries=tries)
        await self.ports.store.save(update.record)
        try:
            await reboot(self.ports, self.limits, update)
        except AgentError as error:
            if error.reason == "StagedLost":
                return self._stage_again(update, str(error))
            return self._degraded(update, str(error), error.reason)
        return None

    def _stage_again(self, update: Update, why: str) -> Next:
        try:
            return booting.stage_again(self.ports, update, why)
        except verify.VerifyFailed as error:
            return self._failed(update, str(error), error.reason, curable=False)

    async def _reverting(self, update: Update) -> Next:
        narrate(self.ports, update, EventKind.REVERTING, update.record.rejected_why, reason=update.record.revert_reason)
        os, target = self.ports.os, update.target
        if os is not None and target is not None:
            reboot_first = await booting.back_to_old(self.ports, self.limits, update, os)
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
        if _reboots(update):
            # What the new config needed a reboot for, the old one needs it for as well, if it came so far.
            return Next(Phase.REBOOTING, "Reverting") if update.record.reboots else Next(Phase.VERIFYING)
        update.index = len(update.writes)
        await acting.act(self.ports, self.limits, update, acting.unit_steps(update))
        return Next(Phase.VERIFYING)

    async def _releasing(self, update: Update) -> Next:
        record = update.record
        await writing.forget_originals(self.ports, update)
        if self.ports.node is not None:
            await self.ports.node.uncordon(record.update_id)
        await self.ports.lease.release(record.update_id)
        return Next(Phase.DEGRADED, "Reverted", record.rejected_why) if record.reverting else Next(Phase.IDLE)

    # What a failure leads to.

    def _failed(self, update: Update, message: str, reason: str, *, curable: bool) -> Next:
        record = update.record
        if record.phase is Phase.STAGING and not record.acted:
            return self._put_off(message, reason)
        if record.phase in (Phase.LEASING, Phase.DRAINING, Phase.RELEASING):
            return self._degraded(update, message, reason)
        answer = after_failure(
            record,
            curable=curable,
            planned_reboot=_reboots(update),
            may_reboot=self.limits.may_reboot,
            revert=self.limits.revert,
        )
        match answer:
            case Answer.REBOOT:
                update.record = replace(record, fallback=message)
                narrate(self.ports, update, EventKind.FALLBACK, message, reason=reason)
                return Next(Phase.REBOOTING, reason, message)
            case Answer.REVERT:
                update.record = replace(
                    record,
                    reverting=True,
                    revert_reason=reason,
                    rejected=record.to_digest,
                    rejected_why=message,
                    done=frozenset(),
                )
                return Next(Phase.REVERTING, reason, message)
            case Answer.DEGRADE:
                return self._degraded(update, message, reason)

    def _put_off(self, message: str, reason: str) -> Next:
        """Nothing was touched: no history, nothing is rejected, and the record says only what is still staged."""

        async def save(after: Record) -> None:
            await self.ports.store.save(
                replace(
                    at_rest(after),
                    phase=after.phase,
                    since=after.since,
                    boot_id=after.boot_id,
                    reason=reason,
                    message=message,
                    to_name=after.to_name,
                )
            )

        return Next(Phase.DEGRADED, reason, message, save=save)

    def _degraded(self, update: Update, message: str, reason: str) -> Next:
        """The lease is kept where something was written: nobody should disrupt a node in this state unseen."""
        record = update.record
        update.record = replace(record, rejected=record.to_digest, rejected_why=message)
        entry = entry_of(record, update.plan, self.ports.clock.now(), "degraded", reason, message)
        return Next(Phase.DEGRADED, reason, message, save=lambda after: self.ports.store.close_update(after, entry))


def _reboots(update: Update) -> bool:
    return any(isinstance(step, Reboot) for step in update.acts)
