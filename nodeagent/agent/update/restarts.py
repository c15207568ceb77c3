"""Restarts that belong together: systemd restarts a unit in one transaction with those that require it.

No unit is restarted twice, also after a kill: the record has the invocations of the units from before the first
restart, and a unit with another one has read the new files.
"""

from __future__ import annotations

from collections.abc import Sequence

from nodeagent.agent.update.run import Ports, Run
from nodeagent.core.plan.steps import ActStep, RestartUnit, step_id, step_unit


async def taken_along(ports: Ports, steps: Sequence[ActStep]) -> frozenset[str]:
    """Return the services that are restarted along with those of ``steps``. Other units have no process."""
    restarts = [step.unit for step in steps if isinstance(step, RestartUnit)]
    along = [await ports.units.restarts_with(unit) for unit in restarts]
    return frozenset(unit for units in along for unit in units if unit.endswith(".service")) - frozenset(restarts)


def along_before(run: Run) -> tuple[str, ...]:
    """Return the services that ran before the update, and that its restarts take along without naming them."""
    named = {step_unit(step) for step in run.update.acts}
    return tuple(unit for unit in run.record.units_before.states if unit not in named)


async def in_transactions(ports: Ports, steps: Sequence[ActStep]) -> list[ActStep]:
    """Return the steps with each restart after those of the units that take its unit along: systemd restarts them in
    one transaction, and the later step finds its unit restarted."""
    # The dependencies of each unit are a call to systemd, and a single restart needs no order.
    left = [step for step in steps if isinstance(step, RestartUnit)]
    along = {step.unit: await ports.units.restarts_with(step.unit) for step in left} if len(left) > 1 else {}
    ordered: list[ActStep] = []
    for step in steps:
        if not isinstance(step, RestartUnit):
            ordered.append(step)
            continue
        first = (each for each in left if not any(each.unit in along.get(other.unit, ()) for other in left))
        # Units that require each other are all restarted by the first.
        ordered.append(found := next(first, left[0]))
        left.remove(found)
    return ordered


async def _runs(run: Run, steps: Sequence[ActStep]) -> dict[str, str]:
    """Return the invocations of the units that run and are still to be restarted. A unit that is starting may have read
    the previous files, so it is not among them."""
    units = [each.unit for each in steps if isinstance(each, RestartUnit)]
    found = {unit: await run.ports.units.state(unit) for unit in units}
    return {unit: state.invocation_id for unit, state in found.items() if state.active == "active"}


async def mark(run: Run, step: ActStep, ident: str, steps: Sequence[ActStep]) -> str | None:
    """Save that the step begins. Return the invocation of a unit from before the first restart of this update, or from
    before an earlier attempt of this one; None if its run is not to be compared."""
    progress = run.record.written
    since = progress.invocation if progress.restarting == ident else None
    if isinstance(step, RestartUnit):
        if since is None:
            before = (await run.ports.units.state(step.unit)).invocation_id
            run.update.change_leg(restarting=ident, invocation=before)
        restarts = {step_id(each) for each in steps if isinstance(each, RestartUnit)}
        # Only before the first restart: a unit that it took along has a new invocation afterwards.
        if not progress.runs and not restarts & progress.done:
            run.update.change_leg(runs=await _runs(run, steps))
        since = run.record.written.runs.get(step.unit) or since
    await run.ports.store.save(run.record)
    return since
