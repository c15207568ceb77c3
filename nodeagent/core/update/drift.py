"""Drift: managed entries of this host that differ from its current config, as data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import CORE_USER, MachineConfig

__all__ = [
    "Drift",
    "DriftedEntry",
    "OnDrift",
    "describe_drift",
    "entries_by_path",
    "only",
    "unchanged",
    "updated",
    "watched_paths",
]

SHADOW: Final = "/etc/shadow"
# Entries in a message; the status has all of them.
SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class DriftedEntry:
    """``entry`` is an id (``file:/etc/x``), ``why`` the difference without content. ``since`` is when it was found.

    ``by`` names the program or user that made the change, "" if that is unknown.
    """

    entry: str
    why: str
    since: str
    by: str = ""


Drift = Sequence[DriftedEntry]

# The values of the setting ``on_drift``.
OnDrift = Literal["report", "refuse", "repair"]


def entries_by_path(config: MachineConfig) -> dict[str, str]:
    """Return the id of the entry that each managed path belongs to."""
    owners: dict[str, str] = dict.fromkeys(expand(MachineConfig("", users=config.users)), f"sshkey:{CORE_USER}")
    for unit in config.units.values():
        owners.update(dict.fromkeys(expand(MachineConfig("", units={unit.name: unit})), f"unit:{unit.name}"))
    owners.update({path: f"file:{path}" for path in config.files})
    return owners


def watched_paths(config: MachineConfig) -> dict[str, str]:
    """Return the paths whose change may be drift, with the id of their entry."""
    core = config.users.get(CORE_USER)
    password = {SHADOW: f"password:{CORE_USER}"} if core is not None and core.password_hash is not None else {}
    return {**password, **entries_by_path(config)}


def only(config: MachineConfig, entries: Collection[str]) -> MachineConfig:
    """Return the part of ``config`` that these entries are, for a check of them alone."""
    core = config.users.get(CORE_USER)
    users = {}
    if core is not None:
        keys = core.ssh_keys if f"sshkey:{CORE_USER}" in entries else ()
        password = core.password_hash if f"password:{CORE_USER}" in entries else None
        users = {CORE_USER: replace(core, ssh_keys=keys, password_hash=password)}
    return replace(
        config,
        files={path: file for path, file in config.files.items() if f"file:{path}" in entries},
        units={name: unit for name, unit in config.units.items() if f"unit:{name}" in entries},
        users=users,
    )


def unchanged(entries: Iterable[str], old: MachineConfig, new: MachineConfig) -> frozenset[str]:
    """Return those of ``entries`` that are equal in both configs."""
    return frozenset(entry for entry in entries if _part(old, entry) == _part(new, entry))


def _part(config: MachineConfig, entry: str) -> object:
    part = only(config, (entry,))
    return part.files, part.units, part.users


def updated(
    known: Drift, checked: Collection[str] | None, found: Mapping[str, str], now: str, by: Mapping[str, str]
) -> Drift:
    """Return the drift after a check of the entries ``checked`` (None: of all), which found ``found``.

    An entry that differed before keeps its time, and its culprit unless there is a newer one.
    """
    before = {each.entry: each for each in known}
    kept = [] if checked is None else [each for each in known if each.entry not in checked]
    fresh = [_entry(before.get(entry), entry, why, now, by.get(entry, "")) for entry, why in found.items()]
    return tuple(sorted([*kept, *fresh], key=lambda each: each.entry))


def _entry(before: DriftedEntry | None, entry: str, why: str, now: str, by: str) -> DriftedEntry:
    if before is None:
        return DriftedEntry(entry, why, now, by)
    return replace(before, why=why, by=by or before.by)


def describe_drift(drift: Iterable[DriftedEntry]) -> str:
    """Return the entries as a phrase for messages."""
    found = list(drift)
    shown = [f"{each.entry} {each.why}" + (f" (by {each.by})" if each.by else "") for each in found[:SHOWN]]
    if len(found) > SHOWN:
        shown.append(f"{len(found) - SHOWN} more")
    return "; ".join(shown)
