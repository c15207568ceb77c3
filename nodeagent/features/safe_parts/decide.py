# SPDX-License-Identifier: Apache-2.0
"""Divide an update that cannot be applied now: the changes that need no disruption, and those that wait.

A change is safe if all of its actions are None, DaemonReload, Reload or Restart: its entry of the policy requests
neither a drain nor a reboot. Entries that belong together (a unit and its drop-ins, the files of one program) are
safe together or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from nodeagent.core.config.machineconfig import MachineConfig, with_os_of
from nodeagent.core.plan.change import USERSPACE, ActionType, Change, Plan, PlannedChange
from nodeagent.domains import group_of

SAFE: Final = frozenset({ActionType.NONE, ActionType.DAEMON_RELOAD, ActionType.RELOAD, ActionType.RESTART})


@dataclass(frozen=True, slots=True)
class Parts:
    """Ids of changes. ``waits`` has the cause of each wait: its actions, or the entry that it belongs to."""

    safe: tuple[str, ...]
    waits: Mapping[str, str]


def divide(plan: Plan, group_of: Callable[[Change], str], left: Collection[str] = ()) -> Parts:
    """Divide the changes of ``plan``. ``group_of`` names the group of a change. The changes ``left`` wait, with their
    groups, because another program changed their entries."""
    held: dict[str, str] = {}
    for planned in plan.changes:
        if obstacle := _obstacle(planned, left):
            held.setdefault(group_of(planned.change), planned.change.id)
    # A second pass, because a later change of the plan may keep back the group of an earlier one.
    safe, waits = [], {}
    for planned in plan.changes:
        change = planned.change
        if (with_entry := held.get(group_of(change))) is None:
            safe.append(change.id)
        else:
            obstacle = _obstacle(planned, left)
            waits[change.id] = obstacle or f"together with {with_entry}"
    return Parts(tuple(safe), waits)


def _obstacle(planned: PlannedChange, left: Collection[str]) -> str:
    if planned.change.id in left:
        return "was changed by another program"
    if any(action.type not in SAFE for action in planned.actions):
        return ", ".join(f"{action.type} {action.unit}".strip() for action in planned.actions)
    # A change of the OS without an action of its own still needs a deployment.
    return "" if planned.change.domain in USERSPACE else "the next change of the OS"


def is_safe(plan: Plan) -> bool:
    """Return whether an update with this plan disrupts nothing."""
    return all(action.type in SAFE for action in plan.actions) and all(
        planned.change.domain in USERSPACE for planned in plan.changes
    )


def compose(old: MachineConfig, new: MachineConfig, waiting: Collection[str]) -> MachineConfig:
    """Return ``new``, with the entries ``waiting`` as they are in ``old``."""
    files, units, users = dict(new.files), dict(new.units), dict(new.users)
    directories, links = dict(new.directories), dict(new.links)
    of_users = (users, old.users)
    sides: dict[str, tuple[dict[str, Any], Mapping[str, Any]]]
    sides = {"unit": (units, old.units), "sshkey": of_users, "password": of_users, "user": of_users}
    storage: list[tuple[dict[str, Any], Mapping[str, Any]]]
    storage = [(files, old.files), (directories, old.directories), (links, old.links)]
    for entry in waiting:
        domain, _, key = entry.partition(":")
        for entries, had in storage if domain == "file" else [sides.get(domain, ({}, {}))]:
            entries.pop(key, None)
            if key in had:
                entries[key] = had[key]
    return with_os_of(old, replace(new, files=files, units=units, users=users, directories=directories, links=links))


def part_of(plan: Plan) -> Mapping[str, Any] | None:
    """Return the key ``parts`` of a plan. It is set if one part would be applied while the other waits."""
    parts = divide(plan, group_of)
    if not (parts.safe and parts.waits):
        return None
    waits = [{"change": change, "for": obstacle} for change, obstacle in parts.waits.items()]
    return {"safe": list(parts.safe), "waits": waits}
