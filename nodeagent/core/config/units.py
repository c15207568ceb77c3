# SPDX-License-Identifier: Apache-2.0
"""Convert ``systemd.units`` of an Ignition config to ``UnitEntry`` objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nodeagent.core.config import schema
from nodeagent.core.config.conflicts import PathConflicts
from nodeagent.core.config.machineconfig import UnitEntry
from nodeagent.core.config.paths import dropin_path, unit_path
from nodeagent.core.config.problems import Location, shown
from nodeagent.core.config.unit_names import dropin_name_problem, unit_name_problem

# A config that stops the agent could be undone by no later config, because no agent would read it.
OWN_UNIT: Final = "nodeagent.service"


def read_units(units: Sequence[schema.Unit], conflicts: PathConflicts, where: Location) -> dict[str, UnitEntry]:
    """``where`` is the location of the list."""
    entries: dict[str, UnitEntry] = {}
    for index, unit in enumerate(units):
        name = unit.name or ""
        problem = unit_name_problem(name)
        at = where.item(index, name)
        if problem is not None:
            at.bad("name", f"{shown(name)} {problem}" if name else problem)
        entry = _unit(name, unit, conflicts, at)
        if problem is not None:
            continue
        if name in entries:
            at.bad("name", f"{shown(name)} has two entries")
            continue
        entries[name] = entry
        # An entry that only enables a unit, or adds drop-ins to it, leaves the file to the OS.
        if entry.mask or entry.contents is not None:
            conflicts.claim(unit_path(name), at.child("name"))
    return entries


def _unit(name: str, unit: schema.Unit, conflicts: PathConflicts, where: Location) -> UnitEntry:
    enabled, mask = unit.enabled, unit.mask or False
    if name == OWN_UNIT and (mask or enabled is False):
        where.bad("name", f"{OWN_UNIT} cannot switch itself off")
    return UnitEntry(name, _contents(unit.contents, where), enabled, mask, _dropins(name, unit, conflicts, where))


def _dropins(unit_name: str, unit: schema.Unit, conflicts: PathConflicts, where: Location) -> dict[str, str]:
    seen: set[str] = set()
    dropins: dict[str, str] = {}
    for index, dropin in enumerate(unit.dropins or []):
        at, name = where.child("dropins").item(index), dropin.name or ""
        contents = _contents(dropin.contents, at)
        if problem := dropin_name_problem(name):
            at.bad("name", f"{shown(name)} {problem}" if name else problem)
        elif name in seen:
            at.bad("name", f"{shown(name)} has two entries")
        elif contents is not None:
            dropins[name] = contents
            conflicts.claim(dropin_path(unit_name, name), at.child("name"))
        seen.add(name)
    # systemd applies drop-ins in the order of their names, so the order in the config must not be a change.
    return dict(sorted(dropins.items()))


def _contents(text: str | None, where: Location) -> str | None:
    # Empty contents count as absent, as for the machine-config-daemon: the drop-in does not exist, or the unit is that
    # of the OS.
    if text and "\0" in text:
        where.bad("contents", "must not hold a NUL character")
    return text or None
