"""Start units again that ran before the update: those that its actions stopped along, and after a reboot those that no
boot starts. A unit that stays down is reported.

systemd restarts or stops other units in one transaction with a unit of the plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from nodeagent.core.config.unit_names import template_of
from nodeagent.core.plan.steps import ClearState, RestartUnit, StopUnit, step_id
from nodeagent.core.plan.unit_relations import (
    MAX_ALONG,
    NO_RELATIONS,
    Along,
    Relations,
    next_units,
    relations_in,
    taken_along,
)
from nodeagent.core.plan.unit_types import UnitStep, type_of
from nodeagent.errors import AgentError, ServiceUnavailable
from nodeagent.update.events import Warned
from nodeagent.update.ports.host import DOWN, UP
from nodeagent.update.run import Ports, Run, Update
from nodeagent.update.stages.admission import check_still_held

# What the links of a unit file say for a unit that a boot starts.
STARTS_AT_BOOT = frozenset({"enabled", "enabled-runtime"})


async def units_along(ports: Ports, update: Update) -> Along:
    """Return the units that the steps of an update take along, those of the relations that it brings included."""
    steps = [step for step in update.acts if isinstance(step, RestartUnit | StopUnit | ClearState)]
    # A large config takes a moment to expand.
    brought = await asyncio.to_thread(relations_in, update.new) if steps else {}
    return taken_along(steps, await relations_of(ports, [step.unit for step in steps], brought))


async def relations_of(ports: Ports, units: Collection[str], brought: Mapping[str, Relations]) -> dict[str, Relations]:
    """Return the relations of ``units``, and of all units that these take along."""
    relations: dict[str, Relations] = {}
    pending = sorted(set(units))
    while pending and len(relations) < MAX_ALONG:
        unit = pending.pop()
        relations[unit] = await ports.units.relations(unit) | brought.get(unit, NO_RELATIONS)
        pending += sorted(next_units(relations[unit]) - relations.keys() - set(pending))
    return relations


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
