# SPDX-License-Identifier: Apache-2.0
"""The executor: runs an update state by state until it is done, reverted or degraded, or the host goes down.

The course (``update.course``) has the stage of each state. A stage does the work and returns the next state; what it
raises becomes a wait, or the failure that the course answers. The keeper (``update.keeper``) moves the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Final

from nodeagent.errors import AgentError, ServiceUnavailable
from nodeagent.reasons import Reason
from nodeagent.tasks import finished_before, running
from nodeagent.update.course import COURSE, Row, Stage
from nodeagent.update.keeper import Keeper
from nodeagent.update.next.cancelling import taken_back
from nodeagent.update.record import FailedUnit, IllegalTransition, Record
from nodeagent.update.run import Ports, Run, Takeover, Update, UpdatePolicy
from nodeagent.update.stages import act, drain, lease, reboot, release, revert, stage, verify, write
from nodeagent.update.stages.failure import (
    abandon,
    bug,
    degraded,
    failed,
    gives_way,
    safe_parts_first,
    unreleased,
)
from nodeagent.update.states import (
    Apply,
    Fallback,
    Phase,
    Prepare,
    Rest,
    State,
    Superseded,
    Transition,
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
    keeper: Keeper = field(init=False)
    _update: Update | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.keeper = Keeper(self.ports, lambda: self.policy.drain_timeout)

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

    def attempt(self, update: Update, *, overdue: bool = False) -> Run:
        """Return a run with the present policy, which may change between two attempts of a phase."""
        return Run(self.ports, self.policy, update, self.wake, self.superseded, self.safe_first, self.random, overdue)

    async def _unless_bug(self, update: Update, work: Awaitable[Transition | None]) -> Transition | None:
        """Return the transition of ``work``, or to Degraded if it raises an unexpected exception."""
        try:
            return await work
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not become a loop of restarts
            fault = bug(self.ports.reporter, error, update.record.phase)
            return degraded(self.attempt(update), fault.message, fault.reason)

    async def _one(self, update: Update) -> Transition | None:
        """Return where the present phase leads, after as many attempts as its waits take; None: the host goes down."""
        # Before the first write the update may be superseded; afterwards it has to be finished first.
        phase, free, row = update.record.phase, isinstance(update.record.leg, Prepare), COURSE[update.record.state]
        waits = Waiting(self.ports, lambda: self.policy, update, self.random)
        began = self.ports.clock.monotonic()
        while True:
            limit = asyncio.timeout(row.deadline)
            # Phases that write many files postpone their deadline with each file.
            update.progressed = partial(_postpone, limit, row)
            run = self.attempt(update, overdue=waits.overdue)
            update.repeated = waits.repeats
            try:
                async with waits.attempt(limit), limit:
                    return await self._unless_taken_back(run)
            except (NotNow, ServiceUnavailable) as error:
                waited = self.ports.clock.monotonic() - began
                if phase is Phase.RELEASING and not update.ended and waited >= RELEASE_WAIT:
                    return unreleased(run, phase, error.message, error.reason)
                if phase in (Phase.STAGING, Phase.LEASING) and free and _reboot_first(run):
                    return gives_way(error.reason, f"{error.message}; the requested reboot comes first")
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
                    update.mark(failed_unit=FailedUnit(error.unit, self.ports.clock.now()))
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
        """Move the record to the next phase. A transition that is not in the table is a bug, and ends the update."""
        await self._or_stop(update, self.keeper.enter(update, to))

    async def enter_after_boot(self, update: Update, phase: Phase) -> None:
        """Continue an update in another boot."""
        await self._or_stop(update, self.keeper.enter_after_boot(update, phase))

    async def _or_stop(self, update: Update, move: Awaitable[None]) -> None:
        try:
            await move
        except IllegalTransition as error:
            # A second illegal transition would come from here, so it is raised.
            if update.record.phase is Phase.DEGRADED:
                raise
            # The lease is kept, and the config is not applied again without a request: no loop of restarts.
            end = degraded(self.attempt(update), f"a bug in nodeagent: {error}", error.reason)
            await self.keeper.enter(update, end)


def _may_be_taken_back(record: Record) -> bool:
    return isinstance(record.leg, Apply | Fallback) and record.phase is not Phase.RELEASING


def _postpone(limit: asyncio.Timeout, row: Row) -> None:
    if row.by_progress and row.deadline is not None and not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + row.deadline)


def _reboot_first(run: Run) -> bool:
    """Return whether a reboot is requested that comes before this update, which waits."""
    requested = run.ports.reboot_requests.pending()
    # A host that is half-way is repaired first.
    return requested is not None and requested.at_once and run.record.reboot is None and not run.record.unfinished


async def _superseded(run: Run) -> Transition:
    """Discard the staged deployment, and abort the update."""
    await stage.undo(run)
    takeover = run.update.takeover or Takeover(Reason.SUPERSEDED, "another config is desired now")
    if run.record.reboot is not None and takeover.reason != Reason.CANCELLED:
        # The request stays. The update to that config may answer it.
        return gives_way(takeover.reason, f"{takeover.message}; the requested reboot follows")
    return abandon(run, takeover)
