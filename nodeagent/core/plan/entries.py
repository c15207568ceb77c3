# SPDX-License-Identifier: Apache-2.0
"""The entries of a config by their ids, and parts of a config."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import CORE_USER, MachineConfig


def entries_by_path(config: MachineConfig) -> dict[str, str]:
    """Return the id of the entry that each managed path belongs to."""
    owners: dict[str, str] = dict.fromkeys(expand(MachineConfig("", users=config.users)), f"sshkey:{CORE_USER}")
    for unit in config.units.values():
        owners.update(dict.fromkeys(expand(MachineConfig("", units={unit.name: unit})), f"unit:{unit.name}"))
    # Last, but never over another entry: the parser rejects two entries for one path.
    owners.update({path: f"file:{path}" for path in config.storage})
    return owners


def only(config: MachineConfig, entries: Collection[str]) -> MachineConfig:
    """Return the part of ``config`` that these entries are, for a check of them alone."""
    return _filtered(config, lambda entry: entry in entries)


def without(config: MachineConfig, entries: Collection[str]) -> MachineConfig:
    """Return ``config`` without these entries."""
    return _filtered(config, lambda entry: entry not in entries)


def _filtered(config: MachineConfig, selects: Callable[[str], bool]) -> MachineConfig:
    users = {}
    if (core := config.users.get(CORE_USER)) is not None:
        keys = core.ssh_keys if selects(f"sshkey:{CORE_USER}") else ()
        password = core.password_hash if selects(f"password:{CORE_USER}") else None
        users = {CORE_USER: replace(core, ssh_keys=keys, password_hash=password)}
    return replace(
        config,
        files={path: file for path, file in config.files.items() if selects(f"file:{path}")},
        units={name: unit for name, unit in config.units.items() if selects(f"unit:{name}")},
        users=users,
        directories={path: entry for path, entry in config.directories.items() if selects(f"file:{path}")},
        links={path: entry for path, entry in config.links.items() if selects(f"file:{path}")},
    )


def unchanged(entries: Iterable[str], old: MachineConfig, new: MachineConfig) -> frozenset[str]:
    """Return those of ``entries`` that are equal in both configs."""
    return frozenset(entry for entry in entries if _part(old, entry) == _part(new, entry))


def _part(config: MachineConfig, entry: str) -> object:
    part = only(config, (entry,))
    return part.files, part.units, part.users, part.directories, part.links
