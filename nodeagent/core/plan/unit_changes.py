# SPDX-License-Identifier: Apache-2.0
"""Fit the actions of a change to the type of the unit that it concerns.

A unit whose file leaves with the config, or that is masked while it runs, is stopped where its type can be stopped:
systemd would keep it running until the next boot, which a plan with a reboot has. An entry of the policy that requests
no action at all leaves a masked unit running.

systemd reads a changed file of a unit with a daemon-reload only, and starts its generators then. Without one, a restart
would start the previous version again, and a stop would obey a ``RefuseManualStop=`` of the file that is gone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import unit_name_problem
from nodeagent.core.config.units import OWN_UNIT
from nodeagent.core.plan.change import Action, ActionType, Change, ChangeKind
from nodeagent.core.plan.policy import DAEMON_RELOAD, DRAIN, NONE, REBOOT, UNLISTED, restart
from nodeagent.core.plan.sides import Sides
from nodeagent.core.plan.unit_origin import read_at_daemon_reload
from nodeagent.core.plan.unit_types import UnitStep, type_of

_OF_UNIT: Final = (ActionType.RELOAD, ActionType.RESTART)
_JOBS: Final = (*_OF_UNIT, ActionType.STOP, ActionType.START)


def fitting(change: Change, actions: tuple[Action, ...], sides: Sides) -> tuple[Action, ...]:
    """Return the actions of a change as they fit the types of the units."""
    if REBOOT in actions:
        return actions
    fitted = _fitting(change, actions, sides)
    reads = change.domain == "unit" or (change.domain == "file" and read_at_daemon_reload(change.key))
    if DAEMON_RELOAD in fitted or not reads or not any(action.type in _JOBS for action in fitted):
        return fitted
    drain = (DRAIN,) if DRAIN in fitted else ()
    return (*drain, DAEMON_RELOAD, *(action for action in fitted if action != DRAIN))


def possible(actions: tuple[Action, ...], rejected: Collection[Action]) -> tuple[tuple[Action, ...], str]:
    """Replace each action that systemd rejects by the next stronger action, and return the cause as well.

    A restart replaces a reload, and a reboot replaces a restart.
    """
    stronger, problem = list(actions), ""
    for index, action in enumerate(actions):
        if action not in rejected:
            continue
        verb = "reloaded" if action.type is ActionType.RELOAD else "restarted"
        problem = f"{action.unit} cannot be {verb}"
        if action.type is not ActionType.RELOAD or restart(action.unit) in rejected:
            return UNLISTED, problem
        stronger[index] = restart(action.unit)
    return tuple(dict.fromkeys(stronger)), problem


def _fitting(change: Change, actions: tuple[Action, ...], sides: Sides) -> tuple[Action, ...]:
    actions = _by_type(actions)
    if (unit := leaving_unit(change, sides.old, sides.new)) and unit not in sides.host.other_unit_files:
        return _stopping(unit, actions, type_of(unit).leaves)
    if (unit := masked_unit(change, sides.old, sides.new)) and NONE not in actions:
        return _stopping(unit, actions, type_of(unit).masked)
    return actions


def _by_type(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Replace the restart of a unit that has no process by the daemon-reload with which its settings take effect."""
    replaced = (
        DAEMON_RELOAD
        if action.type is ActionType.RESTART and type_of(action.unit).restart == (UnitStep.DAEMON_RELOAD,)
        else action
        for action in actions
    )
    return tuple(dict.fromkeys(replaced))


def _stopping(unit: str, actions: tuple[Action, ...], steps: tuple[UnitStep, ...]) -> tuple[Action, ...]:
    """Return the actions with those of ``steps`` in place of a reload or restart of the unit itself."""
    rest = tuple(action for action in actions if action.unit != unit or action.type not in _OF_UNIT)
    if UnitStep.STOP in steps:
        return (*(action for action in rest if action != NONE), Action(ActionType.STOP, unit))
    return rest or (DAEMON_RELOAD,)


def leaving_unit(change: Change, old: MachineConfig, new: MachineConfig) -> str:
    """Return the unit that loses its file with this change, "" if there is none.

    nodeagent.service never counts, because it makes the update.
    """
    if change.domain == "file" and change.kind is ChangeKind.REMOVED:
        directory, _, unit = change.key.rpartition("/")
        return unit if directory == UNIT_DIR and unit_name_problem(unit) is None and unit != OWN_UNIT else ""
    was, now = old.units.get(change.key), new.units.get(change.key)
    # A mask, or a drop-in alone, is no file of the unit.
    if change.domain != "unit" or was is None or was.mask or was.contents is None or change.key == OWN_UNIT:
        return ""
    return change.key if now is None or (now.contents is None and not now.mask) else ""


def enabled_only(old: MachineConfig, new: MachineConfig) -> frozenset[str]:
    """Return the units whose entry leaves, and did nothing but enable them."""
    leaving = (old.units[name] for name in old.units.keys() - new.units.keys())
    return frozenset(entry.name for entry in leaving if entry == UnitEntry(entry.name, enabled=True))


def masked_unit(change: Change, old: MachineConfig, new: MachineConfig) -> str:
    """Return the unit that this change masks, "" if there is none."""
    if change.domain != "unit" or change.key == OWN_UNIT:
        return ""
    return change.key if _masked(new.units.get(change.key)) and not _masked(old.units.get(change.key)) else ""


def _masked(unit: UnitEntry | None) -> bool:
    return unit is not None and unit.mask


def changed_unit(change: Change) -> str:
    """Return the unit whose file or drop-in this change concerns, "" if there is none."""
    if change.domain == "unit":
        return change.key
    if change.domain != "file" or not change.key.startswith(f"{UNIT_DIR}/"):
        return ""
    first, _, dropin = change.key.removeprefix(f"{UNIT_DIR}/").partition("/")
    name = first.removesuffix(".d") if dropin else first
    return name if unit_name_problem(name) is None else ""
