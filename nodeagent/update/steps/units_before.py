# SPDX-License-Identifier: Apache-2.0
"""The units from before the first write: what ran then has to run after the update.

The record keeps their states. systemd restarts or stops other units in one transaction with a unit of the plan. Units
that its actions stopped along are started again, and after a reboot those that no boot starts. A unit that stays down
is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

from nodeagent.core.config.paths import unit_path
from nodeagent.core.config.unit_names import is_template, template_of
from nodeagent.core.plan.change import ActionType, ChangeKind
from nodeagent.core.plan.steps import (
    ClearState,
    RemovePath,
    RestartStaticPod,
    RestartUnit,
    RestoreUnit,
    StartUnit,
    StopUnit,
    step_id,
    step_unit,
)
from nodeagent.core.plan.unit_changes import changed_unit, masked_unit
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
from nodeagent.update.ports.events import Warned
from nodeagent.update.ports.host import DOWN, UP
from nodeagent.update.record import UnitsBefore
from nodeagent.update.run import Ports, Run, Update
from nodeagent.update.stages.admission import check_still_held
from nodeagent.update.steps.unit_verdict import state_before

# What the links of a unit file say for a unit that a boot starts.
STARTS_AT_BOOT = frozenset({"enabled", "enabled-runtime"})


def acted_on(update: Update) -> set[str]:
    """Return the units of the steps."""
    return {step_unit(step) for step in update.acts if not isinstance(step, RestartStaticPod)} - {""}


def touched(update: Update) -> set[str]:
    """Return the units that the plan names, also where a reboot replaces its actions, and those that it changes."""
    # The unit of a RestartStaticPod is the name of a pod, which systemd does not know.
    actions = [action for planned in update.plan.changes for action in planned.actions]
    named = {action.unit for action in actions if action.type is not ActionType.RESTART_STATIC_POD}
    return (acted_on(update) | named | {changed_unit(planned.change) for planned in update.plan.changes}) - {""}


def enabled(update: Update) -> set[str]:
    return {unit.name for unit in update.new.units.values() if unit.enabled and not unit.mask}


async def units_before(ports: Ports, update: Update) -> UnitsBefore:
    """Return the units as they are before the first write, which the node and its readiness are no part of."""
    states: dict[str, str] = {}
    due: set[str] = set()
    healthy: set[str] = set()
    acted = acted_on(update)
    for unit in sorted(await _all(ports, update)):
        state = await ports.units.state(unit)
        if state.load == "not-found":
            continue
        states[unit] = state_before(state)
        newly = unit in enabled(update) and state.file not in STARTS_AT_BOOT
        # After an update that ended half-way, a unit that is down may be its doing.
        if newly or (update.record.repairs and unit in acted and states[unit] in DOWN):
            due.add(unit)
        # An action checks its unit itself, right before it.
        if update.reboots and await ports.health.check(unit) == "":
            healthy.add(unit)
    along = {}
    taken_along = (await units_along(ports, update)).all if acted else {}
    for unit, cause in taken_along.items():
        state = await ports.units.state(unit)
        if state.load != "not-found" and state.active == "active":
            states[unit] = "active"
            along[unit] = cause
    return replace(
        update.record.units_before,
        states=states,
        due=frozenset(due),
        healthy=update.record.units_before.healthy | healthy,
        along=along,
    )


async def _all(ports: Ports, update: Update) -> set[str]:
    units: set[str] = set()
    for unit in touched(update) | enabled(update):
        # A template never runs itself.
        units |= set(await ports.units.instances(unit)) if is_template(unit) else {unit}
    return units


async def notes_on_masks(ports: Ports, update: Update) -> list[str]:
    """Return a note for each unit that the update masks, and that runs on because no action stops it."""
    if update.reboots:
        return []
    changes = [planned.change for planned in update.plan.changes]
    old = update.basis.config if update.basis is not None else update.new
    masked = {masked_unit(change, old, update.new) for change in changes} - {""} - acted_on(update)
    up = [unit for unit in sorted(masked) if (await ports.units.state(unit)).active in UP]
    return [f"{unit} is masked and runs on: no action of the plan stops it" for unit in up]


def not_expected(run: Run) -> set[str]:
    """Return the units that the update disables, masks or removes: they need not run after a boot."""
    if run.record.reverting:
        return set()
    units, writes = run.update.new.units, run.update.writes
    off = {unit.name for unit in units.values() if unit.mask or unit.enabled is False}
    removed = {
        changed_unit(planned.change) for planned in run.update.plan.changes if planned.change.kind is ChangeKind.REMOVED
    }
    # A drop-in that leaves is no reason to be down.
    gone = {unit for unit in removed if RemovePath(unit_path(unit)) in writes}
    restored = {step.unit for step in writes if isinstance(step, RestoreUnit)}
    return off | ((gone | (removed & restored)) - units.keys())


async def units_along(ports: Ports, update: Update) -> Along:
    """Return the units that the steps of an update take along, those of the relations that it brings included."""
    steps = [step for step in update.acts if isinstance(step, RestartUnit | StartUnit | StopUnit | ClearState)]
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
        if not (obstacle := await _obstacle(run, unit, cause)):
            await check_still_held(run, need=run.policy.action_timeout)
            try:
                await run.ports.units.start(unit, run.policy.action_timeout)
            except ServiceUnavailable:
                raise
            except AgentError as error:
                obstacle = error.message
            else:
                run.update.add_notes(f"{unit} was stopped with {cause}, and started again")
                continue
        note = f"{unit} was stopped with {cause}, and is not started again: {obstacle}"
        run.narrate(Warned, note)
        run.update.add_notes(note)
        run.update.change_leg(skipped=run.record.written.skipped | {step_id(RestartUnit(unit))})
    await run.save()


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
    if other := await one_up(run.ports, relations.conflicts):
        return f"it conflicts with {other}"
    wanted = state.file in STARTS_AT_BOOT or await one_up(run.ports, relations.wanted_by | {cause})
    return "" if wanted else "no unit that runs starts it"


async def one_up(ports: Ports, units: Collection[str]) -> str:
    """Return one of these units that runs, "" if none does."""
    for unit in sorted(units):
        if (await ports.units.state(unit)).active in UP:
            return unit
    return ""
