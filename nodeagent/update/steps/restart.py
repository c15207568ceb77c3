# SPDX-License-Identifier: Apache-2.0
"""Restart a unit, or start one that is new or newly enabled. systemd restarts other units in one transaction with it.

A boot starts what a unit that it reaches wants, so a link for another target starts nothing here either. Units that are
started together start in their order (``After=``), because each has a job of its own. A revert stops them.

No unit is restarted twice, also after a kill: the record has the invocations of the units from before the first
restart, and a unit with another one has read the new files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nodeagent import domains
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.plan.change import ChangeKind
from nodeagent.core.plan.steps import (
    ActStep,
    ReloadUnit,
    RemovePath,
    RestartUnit,
    StartUnit,
    StopUnit,
    WritePath,
    step_id,
)
from nodeagent.core.plan.unit_relations import order_after, triggered
from nodeagent.errors import Terminal
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import DOWN, UP
from nodeagent.update.run import Ports, Update
from nodeagent.update.steps.step import UnitWork, keys_of
from nodeagent.update.steps.units_before import along_before, one_up, relations_of

R = TypeVar("R", RestartUnit, StartUnit)


@dataclass(slots=True)
class RestartWork(UnitWork[R]):
    """``since`` is the invocation of the unit from before the first restart of this update, or from before an earlier
    attempt of this one; None if its run is not to be compared."""

    since: str | None = None

    @property
    def limit(self) -> float:
        # With the stop and the start of the units that it starts on demand.
        return 3 * self.run.policy.action_timeout

    async def due(self) -> ActStep:
        """A running unit whose file is gone is stopped instead: it left with the config, or it came with one that is
        reverted."""
        state = await self.state()
        # What is mounted is loaded without a file.
        gone = state.active not in DOWN and not state.file and _file_leaves(self.run.update, self.unit)
        return StopUnit(self.unit) if gone else self.step

    async def applies(self) -> str:
        state = await self.state()
        return self.absent(state) or (f"{self.unit} is masked" if state.load == "masked" else "")

    async def before(self) -> None:
        await self.guard_etcd()
        await self.note_health(*along_before(self.run))
        update, progress = self.run.update, self.run.record.written
        self.since = progress.invocation if progress.restarting == self.ident else None
        if self.since is None:
            update.change_leg(restarting=self.ident, invocation=(await self.state()).invocation_id)
        restarts = {step_id(step): step.unit for step in self.steps if isinstance(step, RestartUnit)}
        # Only before the first restart: a unit that it took along has a new invocation afterwards.
        if not progress.runs and not restarts.keys() & progress.done:
            update.change_leg(runs=await _runs(self.run.ports, restarts.values()))
        self.since = self.run.record.written.runs.get(self.unit) or self.since

    async def do(self) -> str:
        """Restart the unit, and stop the units that it starts on demand in the meantime, if it cannot start beside
        them."""
        units, deadline, since = self.run.ports.units, self.run.policy.action_timeout, self.since
        held = triggered(self.unit, await units.relations(self.unit))
        before = self.run.record.units_before.states
        running = [unit for unit in sorted(held) if await _up(self.run.ports, unit) or before.get(unit) in UP]
        state = await self.state()
        unmet = ""
        if since is None or state.active != "active" or state.invocation_id == since:
            for unit in running:
                await units.stop(unit, deadline)
            unmet = await units.restart(self.unit, deadline, since=since)
        elif not held:
            unmet = await units.restart(self.unit, deadline, since=since)
        for unit in running:
            await units.start(unit, deadline)
        return unmet

    async def proof(self) -> None:
        """Raise ``Terminal`` (``ReloadRejected``) if the kernel did not take the values that the unit sets."""
        values = domains.live_values(self.unit, keys_of(self.run.update), reverted=self.run.record.reverting)
        if values and (problem := await self.run.ports.health.values_problem(values)):
            raise Terminal(f"{self.unit}: {problem}", reason=Reason.RELOAD_REJECTED)


def _file_leaves(update: Update, unit: str) -> bool:
    """Return whether the update changes the file of ``unit``, or removes each file because of which it restarts."""
    path = f"{UNIT_DIR}/{unit}"
    if any(isinstance(step, WritePath | RemovePath) and step.path == path for step in update.writes):
        return True
    # A generator made it of one of those files.
    kinds = {planned.change.id: planned.change.kind for planned in update.plan.changes}
    because = [change for action in update.plan.actions if action.unit == unit for change in action.because]
    return bool(because) and all(kinds.get(change) is ChangeKind.REMOVED for change in because)


async def _up(ports: Ports, unit: str) -> bool:
    return (await ports.units.state(unit)).active in (*UP, "activating")


async def _runs(ports: Ports, units: Iterable[str]) -> dict[str, str]:
    """Return the invocations of those units that run. A unit that is starting may have read the previous files, so it
    is not among them."""
    states = {unit: await ports.units.state(unit) for unit in units}
    return {unit: state.invocation_id for unit, state in states.items() if state.active == "active"}


async def in_transactions(ports: Ports, steps: Sequence[ActStep]) -> list[ActStep]:
    """Return the steps with each restart after those of the units that take its unit along: systemd restarts them in
    one transaction, and the later step finds its unit restarted."""
    # The dependencies of each unit are a call to systemd, and a single restart needs no order.
    left = [step for step in steps if isinstance(step, RestartUnit)]
    relations = await relations_of(ports, [step.unit for step in left], {}) if len(left) > 1 else {}
    along = {step.unit: order_after(step.unit, relations) for step in left}
    ordered: list[ActStep] = []
    for step in steps:
        if not isinstance(step, RestartUnit):
            ordered.append(step)
            continue
        first = (restart for restart in left if not any(restart.unit in along[other.unit] for other in left))
        # Units that require each other are all restarted by the first.
        ordered.append(following := next(first, left[0]))
        left.remove(following)
    return ordered


@dataclass(slots=True)
class StartWork(RestartWork[StartUnit]):
    """The start of a unit that does not run. A restart does the same, and knows what a killed attempt has done."""

    async def due(self) -> ActStep:
        if not self.run.record.reverting:
            return self.step
        ran = self.run.record.units_before.states.get(self.unit, "failed") not in DOWN
        # A reload of the same list has brought its previous configuration back.
        if ran and any(isinstance(step, ReloadUnit) and step.unit == self.unit for step in self.steps):
            return self.step
        return RestartUnit(self.unit) if ran else StopUnit(self.unit)

    async def applies(self) -> str:
        state = await self.state()
        attempted = self.run.record.written.restarting == self.ident
        # After a kill it may run because of this step, and is to be watched.
        if state.active in UP and not attempted:
            return f"{self.unit} runs already"
        if obstacle := await RestartWork.applies(self):
            return obstacle
        units = self.run.ports.units
        wanted = await one_up(self.run.ports, (await units.relations(self.unit)).wanted_by)
        return "" if wanted or attempted else f"no unit that runs starts {self.unit}"


async def in_start_order(ports: Ports, steps: Sequence[ActStep]) -> list[ActStep]:
    """Return the steps with the starts in the order of their units. Units that wait for each other stay as they are."""
    left = [step for step in steps if isinstance(step, StartUnit)]
    # The relations of each unit are a call to systemd, and a single start needs no order.
    if len(left) < 2:
        return list(steps)
    units = {step.unit for step in left}
    after = {unit: (await ports.units.relations(unit)).after & units - {unit} for unit in units}
    ordered: list[ActStep] = []
    for step in steps:
        if isinstance(step, StartUnit):
            waiting = {other.unit for other in left}
            following = next((other for other in left if not after[other.unit] & waiting), left[0])
            left.remove(following)
            ordered.append(following)
        else:
            ordered.append(step)
    return ordered
