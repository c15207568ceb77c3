"""Read ``passwd`` of an Ignition config: SSH keys and password hash of core. Everything else is only compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nodeagent.core.config import schema
from nodeagent.core.config.conflicts import PathConflicts
from nodeagent.core.config.machineconfig import CORE_USER, UserEntry
from nodeagent.core.config.paths import has_control, ssh_keys_path
from nodeagent.core.config.problems import Location, shown
from nodeagent.core.config.shape import field_names, shaped
from nodeagent.core.config.unsupported import UnsupportedSections

__all__ = ["read_users"]


def read_users(
    entries: Sequence[dict[str, Any]], unsupported: UnsupportedSections, conflicts: PathConflicts, where: Location
) -> dict[str, UserEntry]:
    """``where`` is the location of the list."""
    users: dict[str, UserEntry] = {}
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        at, name = where.item(index), entry.get("name")
        if not isinstance(name, str) or not name or has_control(name):
            at.bad("name", "must be the name of a user")
            continue
        if name in seen:
            at.bad("name", f"{shown(name)} has two entries")
            continue
        seen.add(name)
        if name == CORE_USER:
            users[name] = _core(entry, unsupported, at)
            if users[name].ssh_keys:
                conflicts.claim(ssh_keys_path(name), at.child("sshAuthorizedKeys"))
        else:
            unsupported.record(f"passwd.users[{name}]", entry)
    return users


def _core(entry: dict[str, Any], unsupported: UnsupportedSections, where: Location) -> UserEntry:
    user = shaped(entry, schema.CoreUser, where)
    # An empty hash would allow a login without a password: it counts as absent.
    password = user.password_hash or None
    if password is not None and (has_control(password) or ":" in password):
        where.bad("passwordHash", "must not hold colons or control characters")
    for key in entry.keys() - field_names(schema.CoreUser):
        unsupported.record(f"passwd.users[{CORE_USER}].{key}", entry[key])
    keys = _keys(user.ssh_authorized_keys or [], where.child("sshAuthorizedKeys"))
    return UserEntry(CORE_USER, keys, password)


def _keys(texts: Iterable[str], where: Location) -> tuple[str, ...]:
    """Return each key once, sorted: sshd tries all of them, so their order has no meaning."""
    keys: set[str] = set()
    for index, text in enumerate(texts):
        lines = [line.strip() for line in text.split("\n")]
        if any(has_control(line.replace("\t", " ")) for line in lines):
            where.item(index).bad("", "must not hold control characters")
        keys.update(line for line in lines if line)
    return tuple(sorted(keys))
