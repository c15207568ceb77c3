"""``systemd.units`` of an Ignition config to ``UnitEntry``."""

from __future__ import annotations

from typing import Final

from nodeagent.core.config.conflicts import Places
from nodeagent.core.config.fields import Fields
from nodeagent.core.config.file_tree import dropin_path, unit_path
from nodeagent.core.config.machineconfig import UnitEntry
from nodeagent.core.config.problems import shown
from nodeagent.core.config.unit_names import dropin_name_problem, unit_name_problem

__all__ = ["OWN_UNIT", "read_units"]

OWN_UNIT: Final = "nodeagent.service"


def read_units(section: Fields, places: Places, *, version2: bool) -> dict[str, UnitEntry]:
    units: dict[str, UnitEntry] = {}
    for fields in section.children("units"):
        unit = _unit(fields, places, version2=version2)
        if unit is None:
            continue
        if unit.name in units:
            fields.bad("name", f"{shown(unit.name)} has two entries")
        else:
            units[unit.name] = unit
            if unit.mask or unit.contents is not None:
                places.claim(unit_path(unit.name), fields.at("name"))
    section.finish()
    return units


def _unit(fields: Fields, places: Places, *, version2: bool) -> UnitEntry | None:
    name = fields.text("name") or ""
    problem = unit_name_problem(name)
    fields.about = name if problem is None else ""
    if problem is not None:
        fields.bad("name", f"{shown(name)} {problem}" if name else problem)
    contents = _contents(fields)
    enabled = fields.flag("enabled")
    if version2 and fields.flag("enable"):  # the older word; only its true means anything
        if enabled is False:
            fields.bad("enable", "is true while enabled is false")
        enabled = True
    mask = fields.flag("mask") or False
    dropins = _dropins(fields, name, places)
    fields.finish()
    if name == OWN_UNIT and (mask or enabled is False):
        fields.bad("name", f"{OWN_UNIT} cannot switch itself off")
    return None if problem is not None else UnitEntry(name, contents, enabled, mask, dropins)


def _dropins(unit: Fields, unit_name: str, places: Places) -> dict[str, str]:
    seen: set[str] = set()
    dropins: dict[str, str] = {}
    for fields in unit.children("dropins"):
        name = fields.text("name") or ""
        contents = _contents(fields)
        fields.finish()
        problem = dropin_name_problem(name)
        if problem is not None:
            fields.bad("name", f"{shown(name)} {problem}" if name else problem)
        elif name in seen:
            fields.bad("name", f"{shown(name)} has two entries")
        elif contents is not None:
            dropins[name] = contents
            places.claim(dropin_path(unit_name, name), fields.at("name"))
        seen.add(name)
    return dict(sorted(dropins.items()))


def _contents(fields: Fields) -> str | None:
    """An empty text is no text: a drop-in without contents is none, and the unit is the one of the OS."""
    text = fields.text("contents")
    if text and "\0" in text:
        fields.bad("contents", "must not hold a NUL character")
    return text or None
