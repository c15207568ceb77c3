# SPDX-License-Identifier: Apache-2.0
"""Which units systemd restarts or stops together with those of a plan: the relations between units, and their closure.

Facts (systemd.unit(5), ``transaction_add_job_and_dependencies`` in its source):
- A restart restarts all active units that require the unit, are bound to it or are a part of it, and so on.
- A stop stops those units instead, and the units of ``PropagatesStopTo=``. A restart stops the latter as well, and does
  not start them again.
- A start stops the units that conflict with the unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from nodeagent.core.config.file_tree import RegularFile, expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import template_of, unit_name_problem
from nodeagent.core.plan.steps import ActStep, ClearState, RestartUnit, StartUnit, StopUnit
from nodeagent.core.plan.unit_abilities import YES
from nodeagent.core.plan.unit_types import restarts_with_triggered
from nodeagent.core.validate.unit_file import assignments

# Units that one plan takes along. A host has a few of them; the bound is against a config that has none.
MAX_ALONG: Final = 100

Units = frozenset[str]
_NO_UNITS: Final[Units] = frozenset()


@dataclass(frozen=True, slots=True)
class Relations:
    """Units by what systemd does to them with a job of this unit.

    ``restarts`` are restarted with a restart and stopped with a stop, ``stops`` are stopped with both, ``conflicts``
    are stopped by a start, and ``triggers`` are started by it on demand. It needs the units in ``needs``, the ones in
    ``wanted_by`` start it with themselves, and it starts after those in ``after``.
    """

    restarts: Units = _NO_UNITS
    stops: Units = _NO_UNITS
    conflicts: Units = _NO_UNITS
    triggers: Units = _NO_UNITS
    needs: Units = _NO_UNITS
    wanted_by: Units = _NO_UNITS
    after: Units = _NO_UNITS

    def __or__(self, other: Relations) -> Relations:
        return Relations(
            self.restarts | other.restarts,
            self.stops | other.stops,
            self.conflicts | other.conflicts,
            self.triggers | other.triggers,
            self.needs | other.needs,
            self.wanted_by | other.wanted_by,
            self.after | other.after,
        )


NO_RELATIONS: Final = Relations()


@dataclass(frozen=True, slots=True)
class Along:
    """Units that no step names, each with the unit of the plan that takes it along. ``held``: it is stopped while its
    socket is restarted, and started again."""

    restarted: Mapping[str, str] = field(default_factory=dict)
    stopped: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    conflicts: Mapping[str, str] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, str]:
        return {**self.conflicts, **self.stopped, **self.held, **self.restarted}


def next_units(relations: Relations) -> Units:
    """Return the units whose relations count as well."""
    return relations.restarts | relations.stops | relations.triggers


def triggered(unit: str, relations: Relations) -> Units:
    """Return the units that must not run while ``unit`` is restarted."""
    if not restarts_with_triggered(unit):
        return _NO_UNITS
    # The instances of a socket with Accept=yes hold one connection each, and are not in its way.
    return frozenset(other for other in relations.triggers if not template_of(other) or template_of(unit))


def taken_along(steps: Sequence[ActStep], relations: Mapping[str, Relations]) -> Along:
    """Return the units that the steps take along. ``relations`` has those of each unit that matters."""
    named = {action.unit for action in steps if isinstance(action, RestartUnit | StartUnit | StopUnit | ClearState)}
    along = Along({}, {}, {}, {})
    for step in steps:
        if isinstance(step, RestartUnit):
            restarted = _closure(step.unit, relations, with_stops=False)
            held = triggered(step.unit, relations.get(step.unit, NO_RELATIONS))
            stopped = {other for unit in restarted for other in relations.get(unit, NO_RELATIONS).stops}
            stopped = _all_closures(stopped | held, relations) - restarted - held
            conflicts = {other for unit in restarted for other in relations.get(unit, NO_RELATIONS).conflicts}
            _note(along.restarted, restarted - named, step.unit)
            _note(along.held, held - named, step.unit)
            _note(along.stopped, stopped - named, step.unit)
            _note(along.conflicts, conflicts - named, step.unit)
        elif isinstance(step, StartUnit):
            own = relations.get(step.unit, NO_RELATIONS)
            _note(along.held, triggered(step.unit, own) - named, step.unit)
            _note(along.conflicts, own.conflicts - named, step.unit)
        elif isinstance(step, StopUnit | ClearState):
            _note(along.stopped, _closure(step.unit, relations, with_stops=True) - named, step.unit)
    return along


def _note(causes: Mapping[str, str], units: set[str] | frozenset[str], cause: str) -> None:
    assert isinstance(causes, dict)
    for unit in sorted(units):
        causes.setdefault(unit, cause)


def order_after(unit: str, relations: Mapping[str, Relations]) -> Units:
    """Return the units whose restart must follow that of ``unit``, because it takes them along."""
    own = relations.get(unit, NO_RELATIONS)
    return frozenset(_closure(unit, relations, with_stops=False) - {unit}) | own.stops | triggered(unit, own)


def _all_closures(units: set[str] | frozenset[str], relations: Mapping[str, Relations]) -> set[str]:
    return {other for unit in units for other in _closure(unit, relations, with_stops=True)}


def _closure(unit: str, relations_of: Mapping[str, Relations], *, with_stops: bool) -> set[str]:
    closure, pending = {unit}, [unit]
    while pending and len(closure) < MAX_ALONG:
        relations = relations_of.get(pending.pop(), NO_RELATIONS)
        new = (relations.restarts | (relations.stops if with_stops else _NO_UNITS)) - closure
        closure |= new
        pending += sorted(new)
    return closure


def started_on_demand(unit: str, texts: Sequence[str]) -> str:
    """Return the unit that a timer, a path, a socket or an automount starts, "" for another unit or a name with
    specifiers."""
    stem, _, kind = unit.rpartition(".")
    started, accepts = f"{stem}.{'mount' if kind == 'automount' else 'service'}", False
    for text in texts:
        for section, key, value in assignments(text):
            match section, key:
                case ("Timer" | "Path", "Unit") | ("Socket", "Service") if value:
                    started = value
                case "Socket", "Accept":
                    accepts = value.lower() in YES
                case _:
                    pass
    if kind not in ("timer", "path", "socket", "automount") or "%" in started:
        return ""
    return f"{stem}@.service" if accepts else started


# Settings of a unit by the attribute of its own relations, and by that of the units that it names.
_OWN: Final = {"Conflicts": "conflicts", "PropagatesStopTo": "stops", "Requires": "needs", "BindsTo": "needs"}
_OF_OTHERS: Final = {
    **dict.fromkeys(("Requires", "Requisite", "BindsTo", "PartOf"), "restarts"),
    "StopPropagatedFrom": "stops",
    "Conflicts": "conflicts",
}


def relations_in(config: MachineConfig) -> dict[str, Relations]:
    """Return the relations that the unit files and drop-ins of a config set: systemd does not know new ones yet."""
    relations: dict[str, Relations] = {}

    def add(unit: str, attribute: str, others: Units) -> None:
        relations[unit] = relations.get(unit, NO_RELATIONS) | replace(NO_RELATIONS, **{attribute: others})

    for path, entry in expand(config).items():
        if not isinstance(entry, RegularFile) or not path.startswith(f"{UNIT_DIR}/"):
            continue
        first, _, dropin = path.removeprefix(f"{UNIT_DIR}/").partition("/")
        unit = first.removesuffix(".d") if dropin else first
        if unit_name_problem(unit) is not None:
            continue
        stem, _, kind = unit.rpartition(".")
        service, accepts = f"{stem}.service", False
        for section, key, value in assignments(entry.content.decode(errors="replace")):
            others = frozenset(name for name in value.split() if "%" not in name)
            if section == "Unit" and key in _OWN:
                add(unit, _OWN[key], others)
            if section == "Unit" and key in _OF_OTHERS:
                for other in others:
                    add(other, _OF_OTHERS[key], frozenset({unit}))
            if section == "Socket" and key == "Service" and value:
                service = value
            accepts |= section == "Socket" and key == "Accept" and value.lower() in YES
        if kind == "socket" and not dropin and not accepts:
            add(unit, "triggers", frozenset({service}))
        elif kind == "automount" and not dropin:
            add(unit, "triggers", frozenset({f"{stem}.mount"}))
    return relations
