# SPDX-License-Identifier: Apache-2.0
"""Judge the entries of units of a config before anything is written: which can be carried out, which have no unit.

An entry for a unit from nowhere is the same in every situation: a warning, its drop-ins are written, and nothing else
is done, neither now nor when it leaves. When the unit appears, the entry is compared as any other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from nodeagent.core.config.file_tree import DEV_NULL, RegularFile, SymbolicLink, expand
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.config.paths import unit_path
from nodeagent.core.config.unit_names import template_of
from nodeagent.core.plan.sides import NO_CONFIG
from nodeagent.core.plan.unit_abilities import UnitAbilities
from nodeagent.core.plan.unit_origin import MADE, Brought, Origin, names_no_instance, origin_of, unit_of_dropin
from nodeagent.errors import Problem

# Drop-ins that the machine-config-operator renders for every host, whatever units it has.
_OF_OPERATOR: Final = re.compile(r"(?:\d\d-)?mco-.+\.conf")
# Lines with which a drop-in starts nothing: no setting at all, or a condition that may switch the unit off.
_SWITCH: Final = re.compile(r"\s*(?:$|[#;]|\[[^\]]*\]\s*$|(?:Condition|Assert)\w*\s*=)")


@dataclass(frozen=True, slots=True)
class UnitOnHost:
    """A unit on this host before the update: its states as in ``UnitState``, and what systemd can do with it."""

    load: str
    file: str
    abilities: UnitAbilities


@dataclass(frozen=True, slots=True)
class Judged:
    """``untouched`` are the units whose enablement no step changes: from nowhere, or made by a generator. ``idle`` are
    those of which no change takes an action, with the reason. ``later`` are the units that the next OS may bring.
    ``missing``: entry or path to the unit that it lacks, for a warning."""

    untouched: frozenset[str] = frozenset()
    idle: Mapping[str, str] = field(default_factory=dict)
    later: frozenset[str] = frozenset()
    missing: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()


def mentioned(*configs: MachineConfig) -> frozenset[str]:
    """Return the units of which these configs have entries or drop-ins without the file of the unit."""
    without_file: set[str] = set()
    for config in configs:
        brought = Brought(config)
        units = {*config.units, *(unit for path in config.files if (unit := unit_of_dropin(path)))}
        without_file |= {unit for unit in units if not brought.has(unit) and not _masks(config, unit)}
    return frozenset(without_file)


def judge(
    old: MachineConfig,
    new: MachineConfig,
    facts: Mapping[str, UnitOnHost],
    *,
    other_os: bool = False,
    current: MachineConfig = NO_CONFIG,
    other_files: Collection[str] = (),
) -> Judged:
    """Judge the units of ``new``. ``facts`` are about the units of ``mentioned``. ``old`` is what is in effect.
    ``other_files`` are the leaving unit files of which the host has another one, which then applies again.

    An alias is accepted where the ``current`` config has the same entry: it was a unit of its own then.
    """
    before, brought = Brought(old), Brought(new)
    origins = {
        unit: origin_of(unit, before, brought, load=on_host.load, file=on_host.file, other_os=other_os)
        for unit, on_host in facts.items()
    }
    made = {unit for unit, origin in origins.items() if origin is Origin.GENERATOR}
    nowhere = frozenset(unit for unit, origin in origins.items() if origin is Origin.NOWHERE)
    enabled = [entry for entry in new.units.values() if entry.enabled and not entry.mask and entry.contents is None]
    # The file of a unit may leave while an entry of it stays. The unit is stopped, so the change has its actions.
    gone = {
        unit
        for unit, origin in origins.items()
        if origin is Origin.HOST and (file := before.file_of(unit)) and file not in other_files
    }
    lacking = nowhere if other_os else nowhere | gone
    missing = {f"unit:{entry.name}": entry.name for entry in enabled if entry.name in lacking}
    missing |= {path: unit for path, unit in dropins_of(new).items() if unit in lacking}
    switched = {unit for unit in made if _only_enablement(old, new, unit)}
    return Judged(
        nowhere | made,
        {
            **dict.fromkeys(switched, "a generator makes the unit, which systemd does not enable"),
            **{unit: f"there is no unit {unit}" for unit in nowhere},
        },
        frozenset(unit for unit, origin in origins.items() if origin is Origin.NEXT_OS),
        missing,
        tuple(_made(brought, entry, facts) for entry in enabled if entry.name in made),
        tuple(_problems(old, new, brought, facts, current)),
    )


def _only_enablement(old: MachineConfig, new: MachineConfig, unit: str) -> bool:
    """Return whether the entries of a unit differ in the enablement alone."""
    was, now = (replace(config.units.get(unit, UnitEntry(unit)), enabled=None) for config in (old, new))
    return was == now


def _masks(config: MachineConfig, unit: str) -> bool:
    entry = config.units.get(unit)
    return entry is not None and entry.mask


def dropins_of(config: MachineConfig) -> dict[str, str]:
    """Return the drop-ins that set anything, each with its unit."""
    dropins: dict[str, str] = {}
    for path, node in expand(config).items():
        unit = unit_of_dropin(path)
        if not unit or not isinstance(node, RegularFile) or _OF_OPERATOR.fullmatch(path.rpartition("/")[2]):
            continue
        # One that only keeps its unit from being started needs none.
        if not all(_SWITCH.match(line) for line in node.content.decode(errors="replace").splitlines()):
            dropins[path] = unit
    return dropins


def _made(brought: Brought, entry: UnitEntry, facts: Mapping[str, UnitOnHost]) -> Problem:
    path = brought.generator_of(entry.name)
    if facts[entry.name].file == "transient":
        return Problem(f"unit:{entry.name}", "is a unit that a program made until the next boot, so it is not enabled")
    where = f"[Install] of {path}" if path else "[Install] of the file that it is made from"
    return Problem(f"unit:{entry.name}", f"is made by a generator, so systemd cannot enable it: {where} decides")


def _problems(
    old: MachineConfig,
    new: MachineConfig,
    brought: Brought,
    facts: Mapping[str, UnitOnHost],
    current: MachineConfig,
) -> Iterator[Problem]:
    masked = {path for path, node in expand(old).items() if isinstance(node, SymbolicLink) and node.target == DEV_NULL}
    for name, entry in sorted(new.units.items()):
        if entry.mask or entry.enabled is None:
            continue
        where, on_host = f"unit:{name}", facts.get(name)
        current_entry = current.units.get(name)
        if (alias := _alias_of(name, brought, on_host)) and current_entry != entry:
            word = "enable" if entry.enabled else "disable"
            yield Problem(where, f"is an alias of {alias}, which systemd does not {word} by that name: name {alias}")
        elif not entry.enabled or old.units.get(name) == entry:
            continue
        elif _names_no_instance(name, brought, on_host):
            yield Problem(where, "is a template without DefaultInstance=, which cannot be enabled: enable an instance")
        elif on_host is not None and on_host.load == "masked" and unit_path(name) not in masked:
            yield Problem(where, "is masked on this host: run systemctl unmask, or have the config mask it")


def _alias_of(name: str, brought: Brought, on_host: UnitOnHost | None) -> str:
    if brought.has(name):
        return ""
    if alias := brought.alias_of(name):
        return alias
    if on_host is None or on_host.file in MADE or on_host.load == "not-found":
        return ""
    if on_host.abilities.name != name:
        return on_host.abilities.name
    # A template is never loaded, so systemd has no other name for it.
    return "another template" if on_host.file == "alias" and not template_of(name) else ""


def _names_no_instance(name: str, brought: Brought, on_host: UnitOnHost | None) -> bool:
    if brought.has(name):
        return names_no_instance(name, brought.texts_of(name))
    return on_host is not None and not on_host.abilities.can_enable
