"""The executor: runs an update phase by phase until it is done, reverted or degraded, or the host goes down.

Each phase is a function that does the work and returns a transition. Only this module moves the record, and saves it
before the next phase starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Final

from nodeagent.core.display import displayable
from nodeagent.core.plan.change import Plan
from nodeagent.errors import AgentError, ServiceUnavailable
from nodeagent.reasons import Reason
from nodeagent.tasks import finished_before, running
from nodeagent.update.course import COURSE, Row, Stage
from nodeagent.update.history import trail_fold
from nodeagent.update.history.ends import finish_update
from nodeagent.update.history.entry import entry_of, seconds_between, with_trail
from nodeagent.update.history.outcome import VERIFIED
from nodeagent.update.history.trail import Trail, elapsed, trail_to_dict
from nodeagent.update.next.cancelling import taken_back
from nodeagent.update.ports.events import HostDegraded, PhaseEntered, SafePartsApplied, UpdateDone
from nodeagent.update.record import FailedUnit, IllegalTransition, Record, advance, reject
from nodeagent.update.run import (
    Ports,
    Run,
    Superseded,
    Takeover,
    Transition,
    Update,
    UpdatePolicy,
    context_of,
    moment,
)
from nodeagent.update.stages import act, drain, lease, reboot, release, revert, stage, verify, write
from nodeagent.update.stages.failure import abandon, bug, degraded, failed, safe_parts_first, unreleased
from nodeagent.update.states import (
    INTERRUPTED,
    SAFE_PARTS_FIRST,
    Apply,
    Fallback,
    Phase,
    Prepare,
    Rest,
    State,
    Unreleased,
)
from nodeagent.update.wait import FAULT, NotNow, Waiting, retry, wait_of

Work = Callable[[Run], Awaitable[Transition | None]]

_STAGES: Final[Mapping[Stage, Work]] = MappingProxyType(
    {
        Stage.STAGE: stage.do,
        Stage.STAGE_AGAIN: stage.again,
        Stage.LEASE: lease.do,
        Stage.DRAIN: drain.do,
        Stage.DRAIN_FOR_FALLBACK: drain.do_for_fallback,
        Stage.WRITE: write.do,
        Stage.ACT: act.do,
        Stage.REBOOT: reboot.do,
        Stage.VERIFY: verify.do,
        Stage.REVERT: revert.do,
        Stage.VERIFY_REVERTED: verify.undo,
        Stage.RELEASE: release.do,
    }
)

# The work of each state.
WORK: Final[Mapping[State, Work]] = MappingProxyType(
    {state: _STAGES[row.stage] for state, row in COURSE.items() if row.stage is not Stage.NONE}
)

# Seconds after which the end of an update is reported although not everything could be released: its config is decided.
RELEASE_WAIT = 300.0


class RunResult(Enum):
    # Done, or nothing was written and another config is desired.
    ENDED = "ended"
    # Nothing was changed; the same may succeed later.
    PUT_OFF = "put off"
    REBOOTING = "rebooting"
    DEGRADED = "degraded"
    # The end is reported, and the release goes on.
    UNRELEASED = "unreleased"


@dataclass(eq=False)
class Executor:
    """``superseded`` returns whether there is a newer desired config than that of the update, and ``wake`` is set when
    there may be one. ``random`` is a number from 0 to 1 at each call. ``safe_first`` as in ``Run``."""

    ports: Ports
    policy: UpdatePolicy
    superseded: Callable[[Update], Awaitable[bool]]
    wake: asyncio.Event
    random: Callable[[], float]
    safe_first: Callable[[Update, AgentError], Awaitable[bool]]
    work: dict[State, Work] = field(default_factory=lambda: dict(WORK), init=False)
    # The time since which this process counts for the reboot budget.
    _began: float = field(init=False)
    _update: Update | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._began = self.ports.clock.monotonic()

    @property
    def update(self) -> Update | None:
        """The update under way."""
        update = self._update
        return None if update is None or isinstance(update.record.leg, Rest) else update

    @property
    def reboot_accepted(self) -> bool:
        """Whether the host goes down because this process requested it."""
        return self._update is not None and self._update.reboot_accepted

    @property
    def under_way(self) -> Update | None:
        """The update under way, None at rest and while only a release is left."""
        update = self._update
        resting = update is None or update.ended or update.record.phase in (Phase.IDLE, Phase.DEGRADED, Phase.RELEASING)
        return None if resting else update

    async def run(self, update: Update) -> RunResult:
        """Continue from the phase in the record. A cancellation leaves a record from which ``resume`` continues."""
        self._update = update
        while True:
            match update.record.phase:
                case Phase.IDLE:
                    return RunResult.ENDED
                case Phase.DEGRADED:
                    # A config that was rejected is a lasting end. Otherwise the loop tries again later.
                    rejected = update.record.lasting.failed_digest == update.digest
                    return RunResult.DEGRADED if rejected and not update.ended else RunResult.PUT_OFF
                case phase:
                    reported = update.ended
                    if (to := await self._unless_bug(update, self._one(update))) is None:
                        return RunResult.REBOOTING
                    await self.enter(update, to)
                    # The end was reported just now. The loop goes on with the release, with longer pauses.
                    if phase is update.record.phase is Phase.RELEASING and update.ended and not reported:
                        return RunResult.UNRELEASED

    def _run(self, update: Update, *, overdue: bool = False) -> Run:
        """Return a run with the present policy, which may change between two attempts of a phase."""
        return Run(self.ports, self.policy, update, self.wake, self.superseded, self.safe_first, self.random, overdue)

    async def _unless_bug(self, update: Update, work: Awaitable[Transition | None]) -> Transition | None:
        """Return the transition of ``work``, or to Degraded if it raises an unexpected exception."""
        try:
            return await work
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not become a loop of restarts
            found = bug(self.ports.reporter, error, update.record.phase)
            return degraded(self._run(update), found.message, found.reason)

    async def _one(self, update: Update) -> Transition | None:
        """Return where the present phase leads, after as many attempts as its waits take; None: the host goes down."""
        # Before the first write the update may be superseded; afterwards it has to be finished first.
        phase, free, row = update.record.phase, isinstance(update.record.leg, Prepare), COURSE[update.record.state]
        waits = Waiting(self.ports, self.policy, update, self.random)
        began = self.ports.clock.monotonic()
        while True:
            limit = asyncio.timeout(row.deadline)
            # Phases that write many files postpone their deadline with each file.
            update.progressed = partial(_postpone, limit, row)
            run = self._run(update, overdue=waits.overdue)
            update.repeated = waits.repeats
            try:
                async with waits.attempt(limit), limit:
                    return await self._unless_taken_back(run)
            except (NotNow, ServiceUnavailable) as error:
                waited = self.ports.clock.monotonic() - began
                if phase is Phase.RELEASING and not update.ended and waited >= RELEASE_WAIT:
                    return unreleased(run, phase, error.message, error.reason)
                if phase in (Phase.STAGING, Phase.LEASING) and free and await self.safe_first(update, error):
                    return safe_parts_first(error)
                await waits.pause(wait_of(error), self.wake)
                if not free and not _may_be_taken_back(update.record):
                    self.wake.clear()
                elif free and await run.newer():
                    return await _superseded(run)
            except Superseded:
                return await _superseded(run)
            except TimeoutError:
                # Another timeout than that of the phase is an error of the caller.
                if not limit.expired():
                    raise
                how = "made no progress for" if row.by_progress else "took more than"
                # A reboot may help a phase that is late, because the service that it waits for starts again.
                late = f"{phase} {how} {row.deadline} s"
                return await failed(run, late, Reason.PHASE_LATE, curable=True)
            except AgentError as error:
                if error.unit:
                    update.record = replace(update.record, failed_unit=FailedUnit(error.unit, self.ports.clock.now()))
                return await failed(run, str(error), error.reason, curable=error.curable)

    async def _unless_taken_back(self, run: Run) -> Transition | None:
        """Run the phase. After the first write, a cancellation ends it, and leads back where that needs no reboot."""
        if not _may_be_taken_back(run.record):
            return await self._attempt(run)
        if self.wake.is_set() and (back := await self._taken_back(run)) is not None:
            return back
        async with running(self._attempt(run)) as work:
            while not await finished_before(work, self.wake):
                if (back := await self._taken_back(run)) is not None:
                    return back
            return work.result()

    async def _taken_back(self, run: Run) -> Transition | None:
        self.wake.clear()
        return await taken_back(run)

    async def _attempt(self, run: Run) -> Transition | None:
        """Run the phase, again after transient faults: they are no reason to revert, and a phase may be repeated."""
        phase = run.record.phase
        work = self.work[run.record.state]
        # A registry needs longer pauses, which the staging has itself.
        return await work(run) if phase is Phase.STAGING else await retry(run, partial(work, run), FAULT)

    async def enter(self, update: Update, to: Transition) -> None:
        """Move the record to the next phase, and save it before the phase starts."""
        before = update.record
        if to.rejects:
            # An operator cancelled the update, or else it failed here.
            cancelled = to.reason if to.reason == Reason.CANCELLED else ""
            before = reject(before, to.rejects, self.ports.clock.now(), reason=cancelled)
        # The transition table is checked here, and nowhere else is the phase changed.
        try:
            record = self._advanced(before, to)
        except IllegalTransition as error:
            await self.stop(update, error)
            return
        # The controller of the cluster gives a cordoned node no other config, so the message says how to uncordon it.
        if to.phase is Phase.DEGRADED and record.cordon and self.ports.node is not None:
            advice = await self.ports.node.advice()
            to = replace(to, message="; ".join(filter(None, (to.message, advice))))
            record = replace(record, message=to.message)
        kind = HostDegraded if to.phase is Phase.DEGRADED else PhaseEntered
        event = kind(context_of(self.ports, record, record.phase), to.message, to.reason)
        trail = self._trail(before, event)
        if record.update_id:
            record = replace(record, trail=trail)
        # The record is on the disk before the next phase starts. After a kill, the phase runs again.
        await self._save(record, update.plan, before, to, trail)
        # Until the release, a client that waits for the update would see an end although the node is still held.
        if before.phase is Phase.RELEASING and isinstance(before.leg, Apply | Fallback):
            self._report_done(update)
        update.record = record
        self.ports.reporter.emit(event)
        if isinstance(before.leg, Unreleased):
            # The end of this update was reported before.
            return
        again = before.aborted is not None and before.aborted.reason in (INTERRUPTED, SAFE_PARTS_FIRST)
        if to.phase is Phase.DEGRADED or update.ended or (to.phase is Phase.IDLE and not again):
            await finish_update(self.ports, before, update.plan, to)

    def _advanced(self, before: Record, to: Transition) -> Record:
        clock, boot_id = self.ports.clock, self.ports.power.boot_id()
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
        # The budget counts time on the steady clock of each boot, so a change of the wall clock does not reset it.
        budget = record.lasting.budget.counted(boot_id, clock.monotonic(), self._began)
        repeated = isinstance(leg, Apply) and leg.soft_failed
        if to.phase is Phase.REBOOTING and (isinstance(leg, Fallback) or repeated):
            budget = budget.spend()
        record = replace(record, lasting=replace(record.lasting, budget=budget))
        if to.phase is Phase.DRAINING:
            until = clock.monotonic() + self.policy.drain_timeout
            # The cordon is recorded before it is made. After a kill, the node is uncordoned even if the cordon was not
            # made.
            record = replace(record, cordon=record.cordon or record.operation, drain_until=until)
        return record

    def _trail(self, before: Record, event: PhaseEntered | HostDegraded) -> Trail:
        """Return the trail after a transition. At rest, the last phase is over and no other one begins."""
        now = moment(self.ports)
        if event.about.phase in (Phase.IDLE, Phase.DEGRADED):
            return trail_fold.closed(before.trail, now)
        return trail_fold.fold(before.trail, displayable(event), now)

    async def _save(self, record: Record, plan: Plan, before: Record, to: Transition, trail: Trail) -> None:
        """Save the record, and with the end of the update its entry in the history. A verified config is promoted."""
        store, end = self.ports.store, to.end
        # The end of this update is in the history already.
        if isinstance(before.leg, Unreleased):
            end = None
        if end is not None:
            now = self.ports.clock.now()
            entry = with_trail(entry_of(before, plan, now, end.outcome, end.reason, end.message), trail)
            if end.outcome in VERIFIED:
                await store.promote(record, record.to_digest, entry)
            else:
                await store.close_update(record, entry)
        elif to.phase in (Phase.IDLE, Phase.DEGRADED):
            # The end of the release is known only after its entry was written.
            await store.end_trail(record, before.update_id, trail_to_dict(trail))
        else:
            await store.save(record)

    async def stop(self, update: Update, error: IllegalTransition) -> None:
        """End the update in its phase after a bug in nodeagent, which must not become a loop of restarts.

        The lease is kept, and the config is not applied again without a request.
        """
        # A second illegal transition would come from this function, so it is raised.
        if update.record.phase is Phase.DEGRADED:
            raise error
        await self.enter(update, degraded(self._run(update), f"a bug in nodeagent: {error}", error.reason))

    def _report_done(self, update: Update) -> None:
        record, seconds = update.record, elapsed(update.record.trail)
        if (partial := record.partial) is not None:
            update.narrate(self.ports, SafePartsApplied, partial)
            return
        # A power cut may have taken the place of a soft reboot.
        softly = 0 < record.written.soft_reboots == record.written.requested_reboots
        after = (f"after a {'soft ' * softly}fallback reboot, because {record.fallback}",) if record.fallback else ()
        update.narrate(
            self.ports,
            UpdateDone,
            "; ".join((*after, *record.notes)),
            seconds=seconds_between(record.started, self.ports.clock.now()) if seconds is None else seconds,
            reboots=record.written.requested_reboots,
            digest=record.to_digest,
        )


def _may_be_taken_back(record: Record) -> bool:
    return isinstance(record.leg, Apply | Fallback) and record.phase is not Phase.RELEASING


def _postpone(limit: asyncio.Timeout, row: Row) -> None:
    if row.by_progress and row.deadline is not None and not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + row.deadline)


async def _superseded(run: Run) -> Transition:
    """Discard the staged deployment, and abort the update."""
    await stage.undo(run)
    return abandon(run, run.update.takeover or Takeover(Reason.SUPERSEDED, "another config is desired now"))
