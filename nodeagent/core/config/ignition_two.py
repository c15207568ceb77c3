# SPDX-License-Identifier: Apache-2.0
"""Keys of Ignition's specification 2 in sections of a config of specification 3 that are read as plain data.

Those of the typed sections are in ``shape``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from nodeagent.core.config import schema
from nodeagent.core.config.problems import Location, shown

# What replaces each of them.
_ENTRIES: Final[Mapping[str, Mapping[str, str]]] = {
    "filesystems": {
        "mount": "write its keys into the entry itself",
        "name": "delete it, and write the paths of files as they are on the host",
    },
    "users": {"create": "write its keys into the entry of the user"},
}
_PARTITIONS: Final = {"size": "write sizeMiB", "start": "write startMiB"}
_CONFIG: Final = {"append": "write merge"}


def check_keys_of_two(config: schema.Config, where: Location) -> None:
    """Report the keys of specification 2 in ``config``, which is at ``where``."""
    storage, passwd = config.storage or schema.Storage(), config.passwd or schema.Passwd()
    _check_entries(storage.filesystems, _ENTRIES["filesystems"], where.child("storage.filesystems"))
    for index, disk in enumerate(storage.disks or ()):
        _check_entries(
            disk.get("partitions"), _PARTITIONS, where.child("storage.disks").item(index).child("partitions")
        )
    _check_entries(passwd.users, _ENTRIES["users"], where.child("passwd.users"))
    if config.ignition is not None:
        _check(config.ignition.config, _CONFIG, where.child("ignition.config"))


def _check_entries(entries: object, keys: Mapping[str, str], where: Location) -> None:
    for index, entry in enumerate(entries if isinstance(entries, Sequence) else ()):
        _check(entry, keys, where.item(index))


def _check(entry: object, keys: Mapping[str, str], where: Location) -> None:
    for key, way in keys.items():
        if isinstance(entry, Mapping) and entry.get(key) is not None:
            where.bad("", f"unknown key {shown(key)}: it is of Ignition 2; {way}")
