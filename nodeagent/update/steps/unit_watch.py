# SPDX-License-Identifier: Apache-2.0
"""Watch units until they stay up: after a restart, after a boot and after a revert, all by the same judge.

After actions, the units of the steps and those that these took along are watched. After a boot, planned or not, every
unit that the plan names or changes and every unit that the config enables is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import unit_name_problem
from nodeagent.core.enumerated import enumerated
from nodeagent.core.plan.steps import ReloadUnit, RemovePath, RestartUnit, StartUnit, WritePath, step_id
from nodeagent.errors import AgentError
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import Warned
from nodeagent.update.ports.host import UP, UnitState
from nodeagent.update.run import Progress, Run
from nodeagent.update.stages.compare import VerifyFailed
from nodeagent.update.steps.act import unit_steps
from nodeagent.update.steps.step import curable
from nodeagent.update.steps.unit_verdict import GOOD, Health, JudgedUnit, UnitVerdict, judge, restarting
from nodeagent.update.steps.units_before import along_before, enabled, not_expected, touched

# Seconds between two checks of units that settle; only for the settle time of one update.
PERIOD = 1.0
# After a boot, each check reads the states of some dozens of units.
BOOT_PERIOD = 2.0
# Seconds within which systemd describes a unit. A longer delay does not count against the unit.
PROMPT = 2.0
# Units that a unit needs are followed this far for the one that failed.
DEPTH = 3
# Units that are still starting, in notes.
MOST_NOTES = 5


@dataclass(slots=True)
class _Check:
    """``runs`` is unit to (invocation id, restarts by systemd)."""

    verdict: UnitVerdict = GOOD
    unit: str = ""
    # Whether a reboot may help.
    curable: bool = True
    runs: dict[str, tuple[str, int]] = field(default_factory=dict)
    # Seconds for which systemd did not answer.
    delay: float = 0.0
    # The end of the time has decided it.
    late: bool = False
    # Of units that are still starting, and do not fail the update.
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Ends:
    """What ended during a watch: unit to its restarts at the first check, and to the result of its last end."""

    restarts: dict[str, int] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)

    def result(self, state: UnitState) -> str:
        """Return why a unit that is not well ended, "" if it did not end.

        Between two ends, a unit that ends again and again looks like one that is slow: it is starting, or even runs.
        """
        first = self.restarts.setdefault(state.name, state.restarts)
        if state.active == "failed" or restarting(state):
            self.results[state.name] = state.result
        elif state.restarts <= (0 if state.active == "activating" else first):
            return ""
        return self.results.get(state.name, "exit-code")


async def _check(run: Run, units: Sequence[str], ends: _Ends, *, over: bool = False) -> _Check:
    """Judge the units. ``over``: the time is over, so what is not decided is decided now."""
    check = _Check()
    ports, before = run.ports, run.record.units_before
    rebooted = run.record.written.boots > 0
    booted = not rebooted or await ports.units.boot_finished()
    jobs = await ports.units.start_jobs() if over and rebooted else {}
    new = touched(run.update) if not run.record.reverting else set()
    gone = not_expected(run) if rebooted else set()
    for unit in units:
        began = ports.clock.monotonic()
        state = await ports.units.state(unit)
        check.delay += max(0.0, ports.clock.monotonic() - began - PROMPT)
        check.runs[unit] = (state.invocation_id, state.restarts)
        facts = JudgedUnit(
            state,
            "inactive" if unit in gone else before.states.get(unit, ""),
            unit in before.due and not run.record.reverting and unit not in gone,
            unit in new or unit in before.due,
            rebooted,
            booted,
            behind=tuple(jobs.get(unit, ())),
        )
        if rebooted and state.active == "inactive":
            facts = await _with_relations(run, facts)
        verdict = judge(facts)
        # A health check that failed before the update does not count against the new config.
        if verdict.health is Health.GOOD and unit in before.healthy and (ill := await ports.health.check(unit)):
            lasting = await ports.health.lasting(unit)
            verdict = UnitVerdict(Health.BAD if lasting else Health.NOT_YET, f"{unit}: {ill}")
        ended = ends.result(state)
        late = over and verdict.health is Health.NOT_YET
        if late:
            check.notes += [verdict.why] if verdict.at_end is Health.GOOD else []
            verdict = UnitVerdict(verdict.at_end, verdict.why)
        if _worse(verdict.health, check.verdict.health):
            # One that ends again and again is not slow.
            check.verdict, check.unit, check.late = verdict, unit, late and not ended
            check.curable = curable(run.update, unit, ended)
    if over:
        check.notes += _still_starting(jobs, units)
    elif not booted and check.verdict.health is Health.GOOD:
        check.verdict = UnitVerdict(Health.NOT_YET, "units are still starting", Health.GOOD)
    return check


def _worse(health: Health, other: Health) -> bool:
    order = (Health.GOOD, Health.NOT_YET, Health.BAD)
    return order.index(health) > order.index(other)


async def _with_relations(run: Run, facts: JudgedUnit) -> JudgedUnit:
    """Return the facts with what starts the unit, and which failed unit keeps it from being started."""
    units = run.ports.units
    relations = await units.relations(facts.state.name)
    wanted = False
    for other in sorted(relations.wanted_by):
        wanted = wanted or (await units.state(other)).active in UP
    needs = tuple(sorted(await _failed(run, relations.needs, DEPTH)))
    return JudgedUnit(
        facts.state, facts.before, facts.due, facts.touched, True, facts.booted, wanted, facts.behind, needs
    )


async def _failed(run: Run, needs: Collection[str], depth: int) -> set[str]:
    failed: set[str] = set()
    for unit in sorted(needs):
        state: UnitState = await run.ports.units.state(unit)
        if state.active == "failed":
            failed.add(unit)
        elif state.active == "inactive" and state.type != "oneshot" and depth:
            failed |= await _failed(run, (await run.ports.units.relations(unit)).needs, depth - 1)
    return failed


def _still_starting(jobs: Mapping[str, Sequence[str]], units: Collection[str]) -> list[str]:
    """Return notes on the start jobs of other units, with what waits for them."""
    notes = []
    for unit, behind in sorted(jobs.items()):
        if unit not in units:
            waiting = f", and the start of {enumerated(behind, 5)} waits for it" if behind else ""
            notes.append(f"{unit} is still starting{waiting}")
    return notes[:MOST_NOTES]


def _watched(run: Run) -> list[str]:
    """Return the units to watch."""
    named = _acted_on(run)
    if not run.record.written.boots:
        return named
    states = run.record.units_before.states
    if run.record.reverting:
        # What the update brought is gone.
        return sorted({*named, *states})
    return sorted({*named, *states, *touched(run.update), *enabled(run.update)} - _templates(run))


def _templates(run: Run) -> set[str]:
    return {unit for unit in touched(run.update) if "@." in unit}


def _acted_on(run: Run) -> list[str]:
    steps = [step for step in unit_steps(run.update) if isinstance(step, RestartUnit | ReloadUnit | StartUnit)]
    done = [step for step in steps if step_id(step) not in run.record.written.skipped]
    return [*(step.unit for step in done), *along_before(run)]


async def forget_gone(run: Run) -> None:
    """Forget the failures of units that the update took away or masked: systemd lists them as failed until then.

    What cannot be forgotten is no fault of the update.
    """
    # The revert removes what the update wrote.
    kind = WritePath if run.record.reverting else RemovePath
    paths = [step.path.rpartition("/") for step in run.update.writes if isinstance(step, kind)]
    units = {unit for directory, _, unit in paths if directory == UNIT_DIR and unit_name_problem(unit) is None}
    # A timer fails with the daemon-reload that brings its mask.
    masked = set() if run.record.reverting else {entry.name for entry in run.update.new.units.values() if entry.mask}
    for unit in sorted(units | (masked & touched(run.update))):
        with suppress(AgentError):
            if (await run.ports.units.state(unit)).load in ("not-found", "masked"):
                await run.ports.units.reset_failed(unit)


async def watch_units(run: Run, progress: Progress) -> None:
    """Return when every unit was good for the settle time without a restart. Raise ``VerifyFailed`` otherwise.

    An automatic restart, and a unit that is still starting, have the time for verification. A unit that failed has it
    too after a planned reboot, where another unit may start it again.

    If a service of the host was away just now, units that went down with it have the time for verification to come
    back, as after each outage that is seen here.
    """
    if not (units := _watched(run)):
        return
    policy, clock = run.policy, run.ports.clock.monotonic
    patient = run.update.reboots and run.record.written.boots > 0
    period = BOOT_PERIOD if run.record.written.boots else PERIOD
    deadline = clock() + policy.verify_timeout
    runs: Mapping[str, tuple[str, int]] | None = None
    since, died, ends = clock(), "", _Ends()
    outages, excused = run.ports.units.outages(), run.update.repeated
    while True:
        check = await _check(run, units, ends)
        # During that time systemd did not answer, so it says nothing about the units.
        deadline += check.delay
        if run.ports.units.outages() != outages:
            outages, excused, runs = run.ports.units.outages(), True, None
            deadline = clock() + policy.verify_timeout
            run.update.progressed()
        health, late = check.verdict.health, clock() >= deadline
        if health is Health.GOOD:
            if runs is None or check.runs != runs:
                died = died or _died(runs or {}, check.runs)
                # Restarted by systemd, by an operator, or by another program: watch the new run.
                runs, since = check.runs, clock()
            if clock() - since >= policy.settle:
                return
            # A watch that began in time may end: otherwise a settle time near the limit would leave no time to come up.
            if late and (died or since >= deadline):
                message = f"{died or 'a unit'} did not stay up"
                raise _failed_unit(run, check, message, died, patient=patient)
            progress("the units run; they are watched", since + policy.settle)
            await asyncio.sleep(min(period, max(policy.settle - (clock() - since), 0.05)))
            continue
        if runs is not None:
            died, runs = died or check.unit, None
        if health is Health.BAD and not (patient or excused):
            raise _failed_unit(run, check, check.verdict.why, check.unit, patient=patient)
        if late:
            await _end(run, units, ends, patient=patient)
            return
        progress(f"{check.verdict.why}; waiting for it", deadline)
        await asyncio.sleep(period)


async def _end(run: Run, units: Sequence[str], ends: _Ends, *, patient: bool) -> None:
    """Decide when the time is over. What is good by then is kept in notes; raise ``VerifyFailed`` for the rest."""
    check = await _check(run, units, ends, over=True)
    if check.verdict.health is not Health.GOOD:
        message = f"{check.verdict.why} after {run.policy.verify_timeout:.0f} s"
        raise _failed_unit(run, check, message, check.unit, patient=patient)
    for note in check.notes:
        run.narrate(Warned, note)
    run.update.add_notes(*check.notes)


def _died(first: Mapping[str, tuple[str, int]], now: Mapping[str, tuple[str, int]]) -> str:
    """Return a unit that systemd restarted because it ended, "" if there is none."""
    return next((unit for unit, (_, restarts) in now.items() if unit in first and restarts > first[unit][1]), "")


def _failed_unit(run: Run, check: _Check, message: str, unit: str, *, patient: bool) -> VerifyFailed:
    # After a planned soft reboot, a full one is all that can follow.
    helps = patient or (check.curable if unit == check.unit else curable(run.update, unit, "exit-code"))
    reason = Reason.VERIFY_LATE if check.late and not patient else Reason.UNIT_UNHEALTHY
    return VerifyFailed(message, reason=reason, curable=helps, unit=unit)


@dataclass(frozen=True, slots=True)
class RestartedUnits:
    """The units that the plan acted on, which were up. ``check`` raises ``VerifyFailed`` for one that has ended."""

    run: Run
    first: _Check
    ends: _Ends
    outages: int

    @classmethod
    async def of(cls, run: Run) -> RestartedUnits:
        ends = _Ends()
        return cls(run, await _check(run, _acted_on(run), ends), ends, run.ports.units.outages())

    async def check(self) -> None:
        if self.run.ports.units.outages() != self.outages:
            # They may have ended with the service of the host that was away.
            return
        now = await _check(self.run, _acted_on(self.run), self.ends)
        if now.verdict.health is Health.BAD:
            raise _failed_unit(self.run, now, now.verdict.why, now.unit, patient=False)
        # A program that crashes in a loop with pauses is active most of the time, so its restarts are counted.
        if died := _died(self.first.runs, now.runs):
            raise _failed_unit(self.run, now, f"{died} did not stay up", died, patient=False)
