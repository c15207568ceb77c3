# SPDX-License-Identifier: Apache-2.0
"""Convert an Ignition config, specification 3.0 to 3.6, to the parts that are applied and those compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nodeagent.core.config import schema
from nodeagent.core.config.conflicts import PathConflicts
from nodeagent.core.config.files import FileReader, read_directories, read_links
from nodeagent.core.config.ignition_two import check_keys_of_two
from nodeagent.core.config.machineconfig import (
    CORE_USER,
    DirectoryEntry,
    FileEntry,
    LinkEntry,
    UnitEntry,
    UserEntry,
)
from nodeagent.core.config.paths import has_control, ssh_keys_path
from nodeagent.core.config.problems import Location, shown
from nodeagent.core.config.shape import fields_of, shaped
from nodeagent.core.config.units import read_units
from nodeagent.core.config.unsupported import UnsupportedSections

# All stable ones. The machine-config-operator renders a config in the newest that it reads. 3.6 differs in the
# special bits of modes only, which no version of a MachineConfig may have.
VERSIONS: Final = ("3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0", "3.6.0")


@dataclass(frozen=True, slots=True)
class Ignition:
    files: dict[str, FileEntry] = field(default_factory=dict)
    units: dict[str, UnitEntry] = field(default_factory=dict)
    users: dict[str, UserEntry] = field(default_factory=dict)
    directories: dict[str, DirectoryEntry] = field(default_factory=dict)
    links: dict[str, LinkEntry] = field(default_factory=dict)


def read_ignition(config: schema.Config, unsupported: UnsupportedSections, where: Location) -> Ignition:
    """Read ``config``, which is at ``where``. If there are problems, the result is not usable."""
    if config == schema.Config():
        # A MachineConfig may have kernel arguments only.
        return Ignition()
    ignition = config.ignition or schema.IgnitionSection()
    _check_version(ignition, where.child("ignition"))
    storage, passwd = config.storage or schema.Storage(), config.passwd or schema.Passwd()
    conflicts = PathConflicts()
    reader = FileReader(unsupported)
    files, at_files = storage.files or [], where.child("storage.files")
    reader.read(files, at_files)
    _record_storage(storage, unsupported, where.child("storage"))
    at_directories = where.child("storage.directories")
    directories = read_directories(storage.directories or [], unsupported, conflicts, at_directories)
    links = read_links(storage.links or [], unsupported, conflicts, where.child("storage.links"))
    users = read_users(passwd.users or [], unsupported, conflicts, where.child("passwd.users"))
    _record_entries(passwd.groups, "name", "passwd.groups", unsupported, where.child("passwd.groups"))
    systemd = config.systemd or schema.SystemdSection()
    units = read_units(systemd.units or [], conflicts, where.child("systemd.units"))
    for key in ("config", "proxy", "security", "timeouts"):
        unsupported.record(f"ignition.{key}", getattr(ignition, key))
    conflicts.check(reader.files, files, at_files)
    check_keys_of_two(config, where)
    return Ignition(reader.files, units, users, directories, links)


def _check_version(ignition: schema.IgnitionSection, where: Location) -> None:
    if ignition.version is None:
        where.bad("version", "is missing, as in 3.4.0")
    elif ignition.version.startswith("2."):
        where.bad("version", "specification 2 is not read: convert the config to 3 (github.com/coreos/ign-converter)")
    elif ignition.version not in VERSIONS:
        where.bad("version", f"unknown version {shown(ignition.version)}, must be one of {', '.join(VERSIONS)}")


def _record_storage(storage: schema.Storage, unsupported: UnsupportedSections, where: Location) -> None:
    """Record the sections that are not applied."""
    # The keys by which Ignition merges two configs: no value of one can occur twice in a merged config.
    lists = {
        "disks": (storage.disks, "device"),
        "filesystems": (storage.filesystems, "device"),
        "luks": (storage.luks, "name"),
        "raid": (storage.raid, "name"),
    }
    for key, (entries, identity) in lists.items():
        _record_entries(entries, identity, f"storage.{key}", unsupported, where.child(key))


def _record_entries(
    entries: list[dict[str, Any]] | None,
    identity: str,
    section: str,
    unsupported: UnsupportedSections,
    where: Location,
) -> None:
    """Record each entry under the value of its key ``identity``."""
    for name, entry, _ in _named(entries, identity, "must name the entry", where):
        unsupported.record(f"{section}[{name}]", entry)


def _named(
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


def read_users(
    entries: Sequence[dict[str, Any]], unsupported: UnsupportedSections, conflicts: PathConflicts, where: Location
) -> dict[str, UserEntry]:
    """``where`` is the location of the list."""
    users: dict[str, UserEntry] = {}
    for name, entry, at in _named(entries, "name", "must be the name of a user", where):
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
    for key in entry.keys() - fields_of(schema.CoreUser).keys():
        unsupported.record(f"passwd.users[{CORE_USER}].{key}", entry[key])
    keys = _keys(user.ssh_authorized_keys or [], where.child("sshAuthorizedKeys"))
    return UserEntry(CORE_USER, keys, password)


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
