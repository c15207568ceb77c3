"""What the record keeps of the units from before the first write: what ran then has to run after the update."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.core.config.paths import unit_path
from nodeagent.core.config.unit_names import is_template
from nodeagent.core.plan.change import ActionType, ChangeKind
from nodeagent.core.plan.steps import RemovePath, RestartStaticPod, RestoreUnit, step_unit
from nodeagent.core.plan.unit_changes import changed_unit, masked_unit
from nodeagent.update.ports.host import DOWN, UP
from nodeagent.update.record import UnitsBefore
from nodeagent.update.run import Ports, Run, Update
from nodeagent.update.stages.admission import reboots
from nodeagent.update.steps.start import STARTS_AT_BOOT, units_along
from nodeagent.update.steps.unit_verdict import state_before


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
        if reboots(update) and await ports.health.check(unit) == "":
            healthy.add(unit)
    along = {}
    for unit, cause in (await units_along(ports, update)).all.items():
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
    found: set[str] = set()
    for unit in touched(update) | enabled(update):
        if is_template(unit):
            # A template never runs itself.
            found |= set(await ports.units.instances(unit))
        else:
            found.add(unit)
    return found


async def notes_on_masks(ports: Ports, update: Update) -> list[str]:
    """Return a note for each unit that the update masks, and that runs on because no action stops it."""
    if reboots(update):
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
    removed = {changed_unit(each.change) for each in run.update.plan.changes if each.change.kind is ChangeKind.REMOVED}
    # A drop-in that leaves is no reason to be down.
    gone = {unit for unit in removed if RemovePath(unit_path(unit)) in writes}
    restored = {step.unit for step in writes if isinstance(step, RestoreUnit)}
    return off | ((gone | (removed & restored)) - units.keys())
