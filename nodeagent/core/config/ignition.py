# SPDX-License-Identifier: Apache-2.0
"""Convert an Ignition config, specification 3.0 to 3.6, to the parts that are applied and those compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from nodeagent.core.config import schema
from nodeagent.core.config.conflicts import PathConflicts
from nodeagent.core.config.files import FileReader, read_directories, read_links
from nodeagent.core.config.ignition_two import check_keys_of_two
from nodeagent.core.config.machineconfig import (
    DirectoryEntry,
    FileEntry,
    LinkEntry,
    UnitEntry,
    UserEntry,
)
from nodeagent.core.config.problems import Location, shown
from nodeagent.core.config.units import read_units
from nodeagent.core.config.unsupported import UnsupportedSections
from nodeagent.core.config.users import named, read_users

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
    conflicts.check({**reader.files, **reader.fetched}, files, at_files)
    check_keys_of_two(config, where)
    return Ignition(reader.files, units, users, directories, {**links, **reader.fetched})


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
    for name, entry, _ in named(entries, identity, "must name the entry", where):
        unsupported.record(f"{section}[{name}]", entry)
