# SPDX-License-Identifier: Apache-2.0
"""What all kinds of steps have in common: the interface of the work, and the events of a step under way.

Each kind of action has a module of its own. ``act`` calls, in this order: ``due``, ``applies``, ``before``, ``do``,
``proof``. A revert calls ``undo`` instead of ``do``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Generic, TypeVar

from nodeagent import domains
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.plan.change import ETCD_UNIT, KeyChange
from nodeagent.core.plan.domain import UnitFailure
from nodeagent.core.plan.steps import (
    ActStep,
    ClearState,
    ReloadUnit,
    RemovePath,
    RestartUnit,
    StartUnit,
    Step,
    StopUnit,
    WritePath,
    describe,
    step_id,
)
from nodeagent.errors import AgentError
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import StepDone, StepFailed, StepSkipped, StepStarted, Warned
from nodeagent.update.ports.host import DOWN, UnitState
from nodeagent.update.run import Run, Update
from nodeagent.update.stages.admission import check_before_etcd_stops, stops_etcd

# A job of systemd ended so, or was not accepted because of the state of its unit.
JOB_REASONS: Final = frozenset(
    {
        Reason.JOB_FAILED,
        Reason.JOB_TIMEOUT,
        Reason.JOB_CANCELED,
        Reason.JOB_ASSERT,
        Reason.JOB_DEPENDENCY,
        Reason.JOB_SKIPPED,
        Reason.JOB_INVALID,
        Reason.JOB_NOT_APPLICABLE,
        Reason.JOB_CONFLICT,
    }
)

S = TypeVar("S", bound=ActStep)
U = TypeVar("U", ClearState, ReloadUnit, RestartUnit, StartUnit, StopUnit)


class ActionFailed(AgentError):
    """``curable``: a reboot may help. ``unit`` is the one that the action is for."""

    default_reason = Reason.ACTION_FAILED

    def __init__(self, message: str, *, reason: AnyReason | None = None, curable: bool = True, unit: str = "") -> None:
        super().__init__(message, reason=reason)
        self.curable = curable
        self.unit = unit


def curable(update: Update, unit: str, result: str) -> bool:
    """Return whether a reboot may cure the failure of ``unit``, as far as the domains know. ``result`` is systemd's."""
    return domains.curable(UnitFailure(unit, result, keys_of(update)))


def keys_of(update: Update) -> tuple[KeyChange, ...]:
    """Return the keys that the update changes."""
    return tuple(key for planned in update.plan.changes for key in planned.keys)


@dataclass(slots=True)
class StepWork(Generic[S]):
    """The work of one step. ``ident`` is that of the planned step, which another one may have replaced since.
    ``steps`` are those of the same pass."""

    # Whether a reboot may cure its failure.
    reboot_helps: ClassVar = True

    run: Run
    step: S
    ident: str
    steps: Sequence[ActStep]

    @property
    def limit(self) -> float | None:
        """The seconds for ``do``; None where each of its waits has a deadline."""
        # systemd would wait for TimeoutStartSec= or TimeoutStopSec= of the unit, which may be infinity.
        return self.run.policy.action_timeout

    async def due(self) -> ActStep:
        """Return the step that is due with the unit files as they are now, or in a revert."""
        return self.step

    async def applies(self) -> str:
        """Return why this step has nothing to act on, "" if it has. Raises ``ActionFailed`` for a unit that is gone."""
        return ""

    async def before(self) -> None:
        """Check whether the step may begin, and note in the record what decides afterwards. Raises ``NotNow``."""

    async def do(self) -> str:
        """Return the start condition because of which systemd started nothing, "" otherwise. May be done again.

        Raises ``ServiceUnavailable`` when systemd does not answer at all; it ends each job that is late itself.
        """
        raise NotImplementedError

    async def undo(self) -> str:
        """As ``do``, in a revert: the same action again, now with the previous files."""
        return await self.do()

    async def proof(self) -> None:
        """Raise ``Terminal`` if the step had no effect although its job is done."""


class UnitWork(StepWork[U]):
    """The work of a step about a unit."""

    @property
    def unit(self) -> str:
        return self.step.unit

    async def state(self) -> UnitState:
        return await self.run.ports.units.state(self.unit)

    def absent(self, state: UnitState) -> str:
        """Return that the unit is not on this host: the built-in policy names units that many hosts do not have.

        Raises ``ActionFailed`` (``UnitNotFound``) for one that ran before and is gone although no file of it left: a
        generator no longer makes it.
        """
        if state.load != "not-found":
            return ""
        ran = self.run.record.units_before.states.get(self.unit, "failed") not in DOWN
        if ran and not self.run.record.reverting:
            message = f"{describe(self.step)}: {self.unit} does not exist any more with the new files"
            raise ActionFailed(message, reason=Reason.UNIT_NOT_FOUND, curable=False, unit=self.unit)
        return f"{self.unit} is not on this host"

    async def guard_etcd(self) -> None:
        """Check the quorum of etcd before its unit stops, and save its data before the unit may start another program.
        Raises ``NotNow``."""
        run = self.run
        if self.unit != ETCD_UNIT:
            return
        # The quorum is checked for this step and not once for all: an earlier step may have taken minutes.
        if await stops_etcd(run.ports):
            await check_before_etcd_stops(run)
        # The prefix covers the drop-ins, which may name another program. A revert keeps the snapshot of its update.
        prefix = f"{UNIT_DIR}/{ETCD_UNIT}"
        paths = [step.path for step in run.update.writes if isinstance(step, WritePath | RemovePath)]
        pods = run.ports.static_pods
        if pods is not None and not run.record.reverting and any(path.startswith(prefix) for path in paths):
            await pods.save_keyspace()

    async def note_health(self, *along: str) -> None:
        """Note which of these units are healthy. Only those have to be healthy afterwards."""
        run = self.run
        healthy = {unit for unit in (self.unit, *along) if await run.ports.health.check(unit) == ""}
        before = run.record.units_before
        run.update.mark(units_before=replace(before, healthy=before.healthy | healthy))


class StepInProgress:
    """The next step of an update. Counts it, and emits its events.

    Leaving the context emits ``StepDone``, unless the step did not start, ended otherwise, or raised an exception.
    """

    def __init__(self, run: Run, planned: Step) -> None:
        self.ident = step_id(planned)
        self._run = run
        self._step: Step = planned
        self._began: float | None = None
        run.update.index += 1

    def becomes(self, step: Step) -> None:
        """Let ``step`` take the place of the planned one in the events."""
        self._step = step

    def started(self) -> None:
        self._run.narrate(StepStarted, self._run.update.progress(self._step))
        self._began = self._run.ports.clock.monotonic()

    def skipped(self, message: str, reason: str = "") -> None:
        self._began = None
        self._run.narrate(StepSkipped, self._run.update.progress(self._step), message, reason)

    def failed(self, message: str, reason: str) -> None:
        self._began = None
        self._run.narrate(StepFailed, self._run.update.progress(self._step), message, reason)

    def tolerated(self, message: str, reason: str) -> None:
        """Report a failure that does not count."""
        self._began = None
        self.warn(message, reason)

    def warn(self, message: str, reason: str) -> None:
        self._run.narrate(Warned, message, reason, self._run.update.progress(self._step))

    def __enter__(self) -> StepInProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._began is not None:
            seconds = self._run.ports.clock.monotonic() - self._began
            self._run.narrate(StepDone, self._run.update.progress(self._step), seconds)
