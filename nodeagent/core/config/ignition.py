"""An Ignition config, specification 3.0 to 3.5 or 2.2, to the parts that we apply and those that we only compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from nodeagent.core.config.conflicts import Places
from nodeagent.core.config.fields import Fields
from nodeagent.core.config.files import FileReader
from nodeagent.core.config.machineconfig import FileEntry, UnitEntry, UserEntry
from nodeagent.core.config.paths import has_control, path_problem
from nodeagent.core.config.problems import shown
from nodeagent.core.config.text.quickfiles import QuickFiles
from nodeagent.core.config.units import read_units
from nodeagent.core.config.unsupported import Unapplied
from nodeagent.core.config.users import read_users

__all__ = ["VERSIONS", "Ignition", "read_ignition"]

VERSION_2: Final = "2.2.0"
VERSIONS: Final = (VERSION_2, "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0")

# Lists of ``storage`` that we do not apply, and the key that tells their entries apart.
_LISTS: Final = {
    "directories": "path",
    "disks": "device",
    "filesystems": "device",
    "links": "path",
    "luks": "name",
    "raid": "name",
}
_LISTS_2: Final = {key: identity for key, identity in _LISTS.items() if key not in ("filesystems", "luks")}


@dataclass(frozen=True, slots=True)
class Ignition:
    files: dict[str, FileEntry] = field(default_factory=dict)
    units: dict[str, UnitEntry] = field(default_factory=dict)
    users: dict[str, UserEntry] = field(default_factory=dict)


def read_ignition(config: Fields, unapplied: Unapplied) -> Ignition:
    """Problems go where those of ``config`` go; on any of them the result is of no use."""
    if not config:
        config.finish()
        return Ignition()  # a MachineConfig may have kernel arguments only
    version2 = _version(config.child("ignition"), unapplied) == VERSION_2
    places = Places(config.problems)
    storage = config.child("storage")
    files = storage.raw("files")
    reader = FileReader(config.problems, unapplied, version2=version2)
    if isinstance(files, QuickFiles) and not version2:
        reader.finish(files, storage.at("files"))
    elif isinstance(files, QuickFiles):
        reader.read([item.plain() for item in files.items], storage.at("files"))
    else:
        reader.read(storage.items("files"), storage.at("files"))
    for key, identity in (_LISTS_2 if version2 else _LISTS).items():
        for path, entry in _entries(storage, key, identity, unapplied, "storage"):
            if identity == "path":
                _claim(path, entry, places, directory=key == "directories")
    passwd = config.child("passwd")
    users = read_users(passwd, unapplied, places)
    _entries(passwd, "groups", "name", unapplied, "passwd")
    passwd.finish()
    units = read_units(config.child("systemd"), places, version2=version2)
    if version2:
        # These have nothing in every entry that identifies it.
        unapplied.note("storage.filesystems", storage.raw("filesystems"))
        unapplied.note("networkd", config.raw("networkd"))
    else:
        unapplied.note("kernelArguments", config.raw("kernelArguments"))
    storage.finish()
    config.finish()
    places.check(reader.files, reader.parents, files, storage.at("files"))
    return Ignition(reader.files, units, users)


def _version(fields: Fields, unapplied: Unapplied) -> str:
    version = fields.text("version")
    if version is None:
        fields.bad("version", "is missing")
    elif version not in VERSIONS:
        fields.bad("version", f"unknown version {shown(version)}, must be one of {', '.join(VERSIONS)}")
    for key in ("config", "proxy", "security", "timeouts"):
        unapplied.note(f"ignition.{key}", fields.raw(key))
    fields.finish()
    return version or ""


def _entries(section: Fields, key: str, identity: str, unapplied: Unapplied, name: str) -> list[tuple[str, Fields]]:
    """Notes the entries of a list, each by what identifies it, and returns that with them."""
    found: dict[str, Fields] = {}
    for entry in section.children(key):
        label = entry.text(identity)
        if not label or has_control(label):
            entry.bad(identity, "must name the entry")
        elif label in found:
            entry.bad(identity, f"{shown(label)} has two entries")
        else:
            found[label] = entry
            unapplied.note(f"{name}.{key}[{label}]", entry.everything())
    return list(found.items())


def _claim(path: str, entry: Fields, places: Places, *, directory: bool) -> None:
    if problem := path_problem(path):
        entry.bad("path", f"{shown(path)} {problem}")
    else:
        places.claim(path, entry.at("path"), directory=directory)
