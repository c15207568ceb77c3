"""Restarts that belong together: systemd restarts or stops other units in one transaction with a unit of the plan.

No unit is restarted twice, also after a kill: the record has the invocations of the units from before the first
restart, and a unit with another one has read the new files. What a stop has taken along is started again, as a boot
would do, or reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from nodeagent.core.config.unit_names import template_of
from nodeagent.core.plan.steps import ActStep, ClearState, RestartUnit, StopUnit, step_id
from nodeagent.core.plan.unit_relations import (
    MAX_ALONG,
    NO_RELATIONS,
    Along,
    Relations,
    next_units,
    order_after,
    relations_in,
    taken_along,
    triggered,
)
from nodeagent.core.plan.unit_types import UnitStep, type_of
from nodeagent.errors import AgentError, ServiceUnavailable
from nodeagent.update.events import Warned
from nodeagent.update.run import Ports, Run, Update
from nodeagent.update.stages.admission import check_still_held
from nodeagent.update.steps.unit_states import DOWN, UP

# What the links of a unit file say for a unit that a boot starts.
STARTS_AT_BOOT = frozenset({"enabled", "enabled-runtime"})


async def units_along(ports: Ports, update: Update) -> Along:
    """Return the units that the steps of an update take along, those of the relations that it brings included."""
    steps = [step for step in update.acts if isinstance(step, RestartUnit | StopUnit | ClearState)]
    # A large config takes a moment to expand.
    brought = await asyncio.to_thread(relations_in, update.new) if steps else {}
    return taken_along(steps, await _known(ports, [step.unit for step in steps], brought))


async def _known(ports: Ports, units: Collection[str], brought: Mapping[str, Relations]) -> dict[str, Relations]:
    """Return the relations of ``units``, and of all units that these take along."""
    known: dict[str, Relations] = {}
    pending = sorted(set(units))
    while pending and len(known) < MAX_ALONG:
        unit = pending.pop()
        known[unit] = await ports.units.relations(unit) | brought.get(unit, NO_RELATIONS)
        pending += sorted(next_units(known[unit]) - known.keys() - set(pending))
    return known


async def notes_along(ports: Ports, along: Along) -> list[str]:
    """Return what a plan says about the running units that it takes along."""
    notes = []
    for unit, cause in sorted(along.all.items()):
        if (await ports.units.state(unit)).active not in UP:
            continue
        if unit in along.restarted:
            notes.append(f"{unit} restarts as well: it requires a unit that restarts")
        elif unit in along.held:
            notes.append(f"{unit} restarts as well: {cause} cannot be restarted while it runs")
        elif unit in along.stopped:
            then = "started again afterwards if it can be" if _starts_again(unit) else "not started again"
            notes.append(f"{unit} stops as well, with {cause}; it is {then}")
        else:
            notes.append(f"{unit} stops: it conflicts with {cause}, which is started")
    return notes


def _starts_again(unit: str) -> bool:
    return UnitStep.START in type_of(unit).along


def along_before(run: Run) -> tuple[str, ...]:
    """Return the services that ran before the update, and that its actions take along without naming them."""
    given_up = run.record.written.skipped
    along = run.record.units_before.along
    return tuple(
        unit for unit in sorted(along) if unit.endswith(".service") and step_id(RestartUnit(unit)) not in given_up
    )


async def start_again(run: Run) -> None:
    """Start the units that ran before the update and that its actions have stopped along. Report those that stay
    down: they do not fail the update, whose plan named them."""
    if run.record.reverting:
        await _start_instances(run)
    for unit, cause in sorted(run.record.units_before.along.items()):
        state = await run.ports.units.state(unit)
        if state.active not in DOWN or state.condition or state.triggered_by:
            continue
        if not (why := await _obstacle(run, unit, cause)):
            await check_still_held(run, need=run.policy.action_timeout)
            try:
                await run.ports.units.start(unit, run.policy.action_timeout)
            except ServiceUnavailable:
                raise
            except AgentError as error:
                why = error.message
            else:
                run.update.add_notes(f"{unit} was stopped with {cause}, and started again")
                continue
        note = f"{unit} was stopped with {cause}, and is not started again: {why}"
        run.narrate(Warned, note)
        run.update.add_notes(note)
        run.update.change_leg(skipped=run.record.written.skipped | {step_id(RestartUnit(unit))})
    await run.ports.store.save(run.record)


async def _start_instances(run: Run) -> None:
    """Start the instances again that the update stopped because their template left."""
    stopped = {step.unit for step in run.update.acts if isinstance(step, StopUnit)}
    for unit, state in sorted(run.record.units_before.states.items()):
        if state not in UP or template_of(unit) not in stopped:
            continue
        await check_still_held(run, need=run.policy.action_timeout)
        await _start(run, unit)


async def _start(run: Run, unit: str) -> None:
    try:
        await run.ports.units.start(unit, run.policy.action_timeout)
    except ServiceUnavailable:
        raise
    except AgentError as error:
        run.narrate(Warned, f"{unit} does not start: {error}", error.reason)


async def start_after_boot(run: Run, not_expected: Collection[str]) -> None:
    """Start the units that ran before the update, and that no boot starts, after a reboot for the update or its revert.
    Whether they are well is judged afterwards."""
    before, reverting = run.record.units_before.states, run.record.reverting
    for unit in sorted(unit for unit, state in before.items() if state in UP and unit not in not_expected):
        if not _starts_again(unit) or not await _waits_for_a_start(run, unit, reverting=reverting):
            continue
        await _start(run, unit)


async def _waits_for_a_start(run: Run, unit: str, *, reverting: bool) -> bool:
    """Return whether nothing has started the unit in this boot, and nothing will. A revert gives a unit that failed one
    more start; after an update its failure is the verdict."""
    state = await run.ports.units.state(unit)
    if state.load != "loaded" or state.file in STARTS_AT_BOOT or state.condition or state.triggered_by:
        return False
    if reverting:
        return state.active in DOWN
    if state.active != "inactive" or state.invocation_id or state.bus_name:
        return False
    return not (await run.ports.units.relations(unit)).wanted_by


async def _obstacle(run: Run, unit: str, cause: str) -> str:
    """Return why a unit that was stopped along is not started again, "" if it is."""
    units = run.ports.units
    state = await units.state(unit)
    if not _starts_again(unit):
        return "units of its type are not started"
    if state.load != "loaded":
        return f"it is {state.load}"
    relations = await units.relations(unit)
    if other := await _one_up(run.ports, relations.conflicts):
        return f"it conflicts with {other}"
    wanted = state.file in STARTS_AT_BOOT or await _one_up(run.ports, relations.wanted_by | {cause})
    return "" if wanted else "no unit that runs starts it"


async def _one_up(ports: Ports, units: Collection[str]) -> str:
    for unit in sorted(units):
        if (await ports.units.state(unit)).active in UP:
            return unit
    return ""


async def in_transactions(ports: Ports, steps: Sequence[ActStep]) -> list[ActStep]:
    """Return the steps with each restart after those of the units that take its unit along: systemd restarts them in
    one transaction, and the later step finds its unit restarted."""
    # The dependencies of each unit are a call to systemd, and a single restart needs no order.
    left = [step for step in steps if isinstance(step, RestartUnit)]
    known = await _known(ports, [step.unit for step in left], {}) if len(left) > 1 else {}
    along = {step.unit: order_after(step.unit, known) for step in left}
    ordered: list[ActStep] = []
    for step in steps:
        if not isinstance(step, RestartUnit):
            ordered.append(step)
            continue
        first = (each for each in left if not any(each.unit in along[other.unit] for other in left))
        # Units that require each other are all restarted by the first.
        ordered.append(found := next(first, left[0]))
        left.remove(found)
    return ordered


async def restart(run: Run, unit: str, deadline: float, since: str | None) -> str:
    """Restart a unit, and stop the units that it starts on demand in the meantime, if it cannot start beside them.

    Returns the start condition that was not met. May be done again after a kill.
    """
    units = run.ports.units
    held = triggered(unit, await units.relations(unit))
    before = run.record.units_before.states
    running = [each for each in sorted(held) if await _up(run.ports, each) or before.get(each) in UP]
    state = await units.state(unit)
    unmet = ""
    if since is None or state.active != "active" or state.invocation_id == since:
        for each in running:
            await units.stop(each, deadline)
        unmet = await units.restart(unit, deadline, since=since)
    elif not held:
        unmet = await units.restart(unit, deadline, since=since)
    for each in running:
        await units.start(each, deadline)
    return unmet


async def _up(ports: Ports, unit: str) -> bool:
    return (await ports.units.state(unit)).active in (*UP, "activating")


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
