# SPDX-License-Identifier: Apache-2.0
"""Which jobs systemd accepts for a unit, as it will be after the files of a config are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from nodeagent.core.plan.change import ActionType
from nodeagent.core.validate.unit_file import assignments

YES: Final = frozenset({"1", "yes", "y", "true", "t", "on"})


@dataclass(frozen=True, slots=True)
class UnitAbilities:
    """``name`` is the own name of the unit, which differs for an alias. ``can_enable`` is false for a template that
    names no instance."""

    name: str
    can_start: bool = True
    can_stop: bool = True
    can_reload: bool = True
    can_enable: bool = True


def of_texts(unit: str, texts: Sequence[str]) -> UnitAbilities:
    """Return the abilities of a unit of which these are all texts: the file, then the drop-ins."""
    return with_texts(UnitAbilities(unit, can_reload=not unit.endswith(".service")), texts)


def with_texts(abilities: UnitAbilities, texts: Sequence[str]) -> UnitAbilities:
    """Return the abilities of a unit of this host after these texts are read as well."""
    for text in texts:
        for section, key, value in assignments(text):
            match section, key:
                case "Unit", "RefuseManualStart":
                    abilities = replace(abilities, can_start=value.lower() not in YES)
                case "Unit", "RefuseManualStop":
                    abilities = replace(abilities, can_stop=value.lower() not in YES)
                case "Service", "ExecReload":
                    # An empty value removes the commands.
                    abilities = replace(abilities, can_reload=bool(value))
                case "Service", "Type" if value == "notify-reload":
                    abilities = replace(abilities, can_reload=True)
                case _:
                    pass
    return abilities


def job_problem(abilities: UnitAbilities, action: ActionType) -> str:
    """Return why systemd rejects this action on a unit, "" if it accepts it."""
    if action is ActionType.RELOAD and not abilities.can_reload:
        return "it cannot be reloaded, because it has no ExecReload=; use Restart"
    if action is ActionType.RESTART and not (abilities.can_start and abilities.can_stop):
        keys = [key for key, can in (("Start", abilities.can_start), ("Stop", abilities.can_stop)) if not can]
        refused = " and ".join(f"RefuseManual{key}=" for key in keys)
        return f"it cannot be restarted, because {refused} rejects manual jobs; use Reload or Reboot"
    return ""
