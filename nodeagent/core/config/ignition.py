"""Convert an Ignition config, specification 3.0 to 3.5 or 2.2, to the parts that are applied and those compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from nodeagent.core.config import schema
from nodeagent.core.config.conflicts import PathConflicts
from nodeagent.core.config.files import FileReader
from nodeagent.core.config.machineconfig import FileEntry, UnitEntry, UserEntry
from nodeagent.core.config.paths import has_control, path_problem
from nodeagent.core.config.problems import Location, shown
from nodeagent.core.config.units import read_units
from nodeagent.core.config.unsupported import UnsupportedSections
from nodeagent.core.config.users import read_users

__all__ = ["VERSIONS", "Ignition", "read_ignition"]

VERSION_2: Final = "2.2.0"
VERSIONS: Final = (VERSION_2, "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0")


@dataclass(frozen=True, slots=True)
class Ignition:
    files: dict[str, FileEntry] = field(default_factory=dict)
    units: dict[str, UnitEntry] = field(default_factory=dict)
    users: dict[str, UserEntry] = field(default_factory=dict)


def read_ignition(config: schema.Config, unsupported: UnsupportedSections, where: Location) -> Ignition:
    """Read ``config``, which is at ``where``. If there are problems, the result is not usable."""
    if config == schema.Config():
        # A MachineConfig may have kernel arguments only.
        return Ignition()
    ignition = config.ignition or schema.IgnitionSection()
    _check_version(ignition, where.child("ignition"))
    version2 = ignition.version == VERSION_2
    storage, passwd = config.storage or schema.Storage(), config.passwd or schema.Passwd()
    conflicts = PathConflicts()
    reader = FileReader(unsupported, version2=version2)
    files, at_files = storage.files or [], where.child("storage.files")
    reader.read(files, at_files)
    _record_storage(storage, unsupported, conflicts, where.child("storage"), version2=version2)
    users = read_users(passwd.users or [], unsupported, conflicts, where.child("passwd.users"))
    _record_entries(passwd.groups, "name", "passwd.groups", unsupported, where.child("passwd.groups"))
    systemd = config.systemd or schema.SystemdSection()
    units = read_units(systemd.units or [], conflicts, where.child("systemd.units"), version2=version2)
    for key in ("config", "proxy", "security", "timeouts"):
        unsupported.record(f"ignition.{key}", getattr(ignition, key))
    unsupported.record("kernelArguments", config.kernel_arguments)
    unsupported.record("networkd", config.networkd)
    _check_key(config.kernel_arguments, "kernelArguments", where, known=not version2)
    _check_key(config.networkd, "networkd", where, known=version2)
    conflicts.check(reader.files, files, at_files)
    return Ignition(reader.files, units, users)


def _check_version(ignition: schema.IgnitionSection, where: Location) -> None:
    if ignition.version is None:
        where.bad("version", "is missing")
    elif ignition.version not in VERSIONS:
        where.bad("version", f"unknown version {shown(ignition.version)}, must be one of {', '.join(VERSIONS)}")


def _check_key(value: object, key: str, where: Location, *, known: bool) -> None:
    if value is not None and not known:
        where.bad("", f"unknown key {shown(key)}")


def _record_storage(
    storage: schema.Storage,
    unsupported: UnsupportedSections,
    conflicts: PathConflicts,
    where: Location,
    *,
    version2: bool,
) -> None:
    """Record the sections that are not applied, and claim the paths in them."""
    lists = {
        "directories": (storage.directories, "path"),
        "disks": (storage.disks, "device"),
        "links": (storage.links, "path"),
        "luks": (storage.luks, "name"),
        "raid": (storage.raid, "name"),
    }
    if version2:
        unsupported.record("storage.filesystems", storage.filesystems)
    else:
        lists["filesystems"] = (storage.filesystems, "device")
    _check_key(storage.luks, "luks", where, known=not version2)
    for key, (entries, identity) in lists.items():
        found = _record_entries(entries, identity, f"storage.{key}", unsupported, where.child(key))
        if identity != "path":
            continue
        for path, entry in found.items():
            if problem := path_problem(path):
                entry.bad("path", f"{shown(path)} {problem}")
            else:
                conflicts.claim(path, entry.child("path"), directory=key == "directories")


def _record_entries(
    entries: list[dict[str, Any]] | None,
    identity: str,
    section: str,
    unsupported: UnsupportedSections,
    where: Location,
) -> dict[str, Location]:
    """Record each entry under the value of its key ``identity``. Return their locations by that value."""
    found: dict[str, Location] = {}
    for index, entry in enumerate(entries or []):
        at, name = where.item(index), entry.get(identity)
        if not isinstance(name, str) or not name or has_control(name):
            at.bad(identity, "must name the entry")
        elif name in found:
            at.bad(identity, f"{shown(name)} has two entries")
        else:
            found[name] = at
            unsupported.record(f"{section}[{name}]", entry)
    return found
