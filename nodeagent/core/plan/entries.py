# SPDX-License-Identifier: Apache-2.0
"""The entries of a config by their ids, and parts of a config."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig, UserEntry


def entries_by_path(config: MachineConfig) -> dict[str, str]:
    """Return the id of the entry that each managed path belongs to."""
    owners: dict[str, str] = {}
    for user in config.users.values():
        owners.update(dict.fromkeys(expand(MachineConfig("", users={user.name: user})), f"sshkey:{user.name}"))
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
    users = {name: _part_of_user(user, selects) for name, user in config.users.items()}
    return replace(
        config,
        files={path: file for path, file in config.files.items() if selects(f"file:{path}")},
        units={name: unit for name, unit in config.units.items() if selects(f"unit:{name}")},
        users=users,
        directories={path: entry for path, entry in config.directories.items() if selects(f"file:{path}")},
        links={path: entry for path, entry in config.links.items() if selects(f"file:{path}")},
    )


def _part_of_user(user: UserEntry, selects: Callable[[str], bool]) -> UserEntry:
    """Return the user with its home, which names the file of the keys, and with what is selected."""
    # The home is no entry: a part without it would look for the keys in another place.
    whole = selects(f"user:{user.name}")
    return replace(
        user,
        ssh_keys=user.ssh_keys if selects(f"sshkey:{user.name}") else (),
        password_hash=user.password_hash if selects(f"password:{user.name}") else None,
        groups=user.groups if whole else (),
        account=user.account if whole else None,
    )


def unchanged(entries: Iterable[str], old: MachineConfig, new: MachineConfig) -> frozenset[str]:
    """Return those of ``entries`` that are equal in both configs."""
    return frozenset(entry for entry in entries if _part(old, entry) == _part(new, entry))


def _part(config: MachineConfig, entry: str) -> object:
    part = only(config, (entry,))
    return part.files, part.units, part.users, part.directories, part.links


def has_entry(config: MachineConfig, entry: str) -> bool:
    """Return whether ``config`` decides about the entry."""
    domain, _, key = entry.partition(":")
    user = config.users.get(key)
    match domain:
        case "file":
            return key in config.storage
        case "unit":
            return key in config.units
        case "sshkey":
            return user is not None and bool(user.ssh_keys)
        case "password":
            return user is not None
        case "user":
            return user is not None and user.account is not None
        case _:
            # Every config has all fields of the OS.
            return True
