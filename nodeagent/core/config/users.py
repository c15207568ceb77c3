# SPDX-License-Identifier: Apache-2.0
"""Convert ``passwd.users`` of an Ignition config to ``UserEntry`` objects.

Of ``core``, whose account is that of the OS, the keys and the password are applied. Any other user is an account that
is created. Accounts of the system are left to systemd-sysusers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from nodeagent.core.config import schema
from nodeagent.core.config.conflicts import PathConflicts
from nodeagent.core.config.machineconfig import CORE_USER, MAX_ID, Account, UserEntry
from nodeagent.core.config.paths import has_control, managed_path_problem, path_problem, ssh_keys_path
from nodeagent.core.config.problems import Location, shown
from nodeagent.core.config.shape import fields_of, shaped
from nodeagent.core.config.unsupported import UnsupportedSections

# Of login.defs, on all supported hosts.
FIRST_UID: Final = 1000
# The kernel's overflowuid: the owner of files whose owner has no id here.
OVERFLOW_UID: Final = 65534
ROOT: Final = "root"
# What useradd accepts.
_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,30}")


def read_users(
    entries: Sequence[dict[str, Any]], unsupported: UnsupportedSections, conflicts: PathConflicts, where: Location
) -> dict[str, UserEntry]:
    """``where`` is the location of the list."""
    users: dict[str, UserEntry] = {}
    for name, entry, at in named(entries, "name", "must be the name of a user", where):
        user = _core(entry, unsupported, at) if name == CORE_USER else _other(name, entry, at)
        if user is None:
            unsupported.record(f"passwd.users[{name}]", entry)
            continue
        users[name] = user
        if user.ssh_keys:
            conflicts.claim(ssh_keys_path(name, user.home), at.child("sshAuthorizedKeys"))
    return users


def named(
    entries: Iterable[dict[str, Any]] | None, identity: str, rule: str, where: Location
) -> Iterator[tuple[str, dict[str, Any], Location]]:
    """Yield each entry with its name and location. ``rule`` is broken by an entry without a name."""
    seen: set[str] = set()
    for index, entry in enumerate(entries or ()):
        at, name = where.item(index), entry.get(identity)
        if not isinstance(name, str) or not name or has_control(name):
            at.bad(identity, rule)
        elif name in seen:
            at.bad(identity, f"{shown(name)} has two entries")
        else:
            seen.add(name)
            yield name, entry, at


def _core(entry: dict[str, Any], unsupported: UnsupportedSections, where: Location) -> UserEntry:
    user = shaped(entry, schema.CoreUser, where)
    for key in entry.keys() - fields_of(schema.CoreUser).keys():
        unsupported.record(f"passwd.users[{CORE_USER}].{key}", entry[key])
    keys = _keys(user.ssh_authorized_keys or [], where.child("sshAuthorizedKeys"))
    return UserEntry(CORE_USER, keys, _password(user.password_hash, where))


def _other(name: str, entry: dict[str, Any], where: Location) -> UserEntry | None:
    """Return the user, None for one that is not managed."""
    user = shaped(entry, schema.User, where)
    # Those of the system belong to packages of the OS, which make them with sysusers.d.
    system = user.system or (user.uid is not None and not FIRST_UID <= user.uid <= MAX_ID) or user.uid == OVERFLOW_UID
    # Without a group of its own, the primary group would be one that the host chooses.
    no_group = user.no_user_group and not user.primary_group
    if name == ROOT or system or no_group or user.should_exist is False or not _NAME.fullmatch(name):
        return None
    home, shell = user.home_dir or "", user.shell or ""
    # Such as /root or /var, which other programs own.
    shallow = "must be in a directory of /" if home.count("/") < 2 else ""
    if home and (problem := managed_path_problem(home) or shallow):
        where.bad("homeDir", problem)
    if shell and (unusable := path_problem(shell)):
        where.bad("shell", unusable)
    gecos = user.gecos or ""
    if has_control(gecos) or ":" in gecos:
        where.bad("gecos", "must not hold colons or control characters")
    for index, group in enumerate(user.groups or ()):
        if not _NAME.fullmatch(group):
            where.child("groups").item(index).bad("", f"{shown(group)} is not a name of a group")
    if user.primary_group and not _NAME.fullmatch(user.primary_group):
        where.bad("primaryGroup", f"{shown(user.primary_group)} is not a name of a group")
    return UserEntry(
        name,
        _keys(user.ssh_authorized_keys or [], where.child("sshAuthorizedKeys")),
        _password(user.password_hash, where),
        home=home,
        group=user.primary_group or "",
        # An order must not be a change.
        groups=tuple(sorted(set(user.groups or ()))),
        account=Account(user.uid, gecos, shell, not user.no_create_home, bool(user.no_log_init)),
    )


def _password(value: str | None, where: Location) -> str | None:
    # An empty hash would allow a login without a password: it counts as absent.
    if value and (has_control(value) or ":" in value):
        where.bad("passwordHash", "must not hold colons or control characters")
    return value or None


def _keys(texts: Iterable[str], where: Location) -> tuple[str, ...]:
    """Return each key once, sorted."""
    # sshd tries all keys, so an order must not be a change.
    keys: set[str] = set()
    for index, text in enumerate(texts):
        # Ignition joins the entries with line breaks, so an entry of several lines is several keys to sshd.
        lines = [line.strip() for line in text.split("\n")]
        # A tab is a separator in authorized_keys(5), as a space is.
        if any(has_control(line.replace("\t", " ")) for line in lines):
            where.item(index).bad("", "must not hold control characters")
        keys.update(line for line in lines if line)
    return tuple(sorted(keys))
