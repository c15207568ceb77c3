# SPDX-License-Identifier: Apache-2.0
"""The changes between two configs, entry by entry. ``reconcile`` decides whether they can be applied.

Kernel arguments compare as an ordered list, because their order matters to the kernel; everything else compares as sets
of entries. The parser normalizes entries with the same meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from nodeagent.core.config.machineconfig import MachineConfig, UserEntry
from nodeagent.core.plan.change import Change, ChangeKind

Entry = TypeVar("Entry")

# Domains with one value for the whole config: the name in the schema, which is domain and key, and the attribute.
_VALUES = (
    ("baseOSExtensionsContainerImage", "extensions_image"),
    ("extensions", "extensions"),
    ("fips", "fips"),
    ("kernelArguments", "argument_rules"),
    ("kernelType", "kernel_type"),
    ("osImageURL", "os_image_url"),
)


def diff(old: MachineConfig, new: MachineConfig) -> tuple[Change, ...]:
    """Return the changes from ``old`` to ``new``, sorted by domain and key."""
    changes = [
        *_entries("file", old.storage, new.storage),
        *_entries("unit", old.units, new.units),
        *_entries("sshkey", _keys(old.users), _keys(new.users)),
        *_entries("password", _passwords(old.users), _passwords(new.users)),
        *_entries("user", _accounts(old.users), _accounts(new.users)),
        *_values(old, new),
    ]
    return tuple(sorted(changes, key=attrgetter("domain", "key")))


def differing(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> list[str]:
    """Return the keys of ``new`` whose entry differs from that of ``old``."""
    # Entries that are the same object on both sides need no comparison.
    others = [
        key for key, before, entry in zip(new, map(old.get, new), new.values(), strict=True) if before is not entry
    ]
    return [key for key in others if old.get(key) != new[key]]


def _entries(domain: str, old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Iterator[Change]:
    for key in differing(old, new):
        yield Change(domain, key, ChangeKind.MODIFIED if key in old else ChangeKind.ADDED)
    for key in old.keys() - new.keys():
        yield Change(domain, key, ChangeKind.REMOVED)


def _keys(users: Mapping[str, UserEntry]) -> dict[str, tuple[str, ...]]:
    return {name: user.ssh_keys for name, user in users.items() if user.ssh_keys}


def _passwords(users: Mapping[str, UserEntry]) -> dict[str, str]:
    return {name: user.password_hash for name, user in users.items() if user.password_hash is not None}


def _accounts(users: Mapping[str, UserEntry]) -> dict[str, UserEntry]:
    """Return the users without what is an entry of its own."""
    return {
        name: replace(user, ssh_keys=(), password_hash=None) for name, user in users.items() if user.account is not None
    }


def _values(old: MachineConfig, new: MachineConfig) -> Iterator[Change]:
    for name, attribute in _VALUES:
        before, after = getattr(old, attribute), getattr(new, attribute)
        if before == after:
            continue
        # False is a value of ``fips``, and not the absence of one.
        if not before and not isinstance(before, bool):
            yield Change(name, name, ChangeKind.ADDED)
        elif not after and not isinstance(after, bool):
            yield Change(name, name, ChangeKind.REMOVED)
        else:
            yield Change(name, name, ChangeKind.MODIFIED)
