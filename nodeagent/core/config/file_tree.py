# SPDX-License-Identifier: Apache-2.0
"""Expand a MachineConfig to the managed paths of the file system, with one entry for each.

Files, directories, links, unit files, drop-ins, masks and SSH keys all become paths here, so that one mechanism writes,
verifies and reverts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nodeagent.core.config.machineconfig import (
    DirectoryEntry,
    FileEntry,
    LinkEntry,
    MachineConfig,
    StorageEntry,
    UserEntry,
)
from nodeagent.core.config.paths import dropin_path, ssh_keys_path, unit_path

# A unit file that is a link to it is masked (systemd.unit(5)).
DEV_NULL = "/dev/null"


@dataclass(frozen=True, slots=True)
class RegularFile:
    """A file. ``label`` is the SELinux context to restore; None: as the policy of the host says.

    ``dir_mode`` and ``dir_owner`` apply to parent directories that are created.
    """

    content: bytes = field(repr=False)
    mode: int = 0o644
    user: int | str = 0
    group: int | str = 0
    label: str | None = None
    dir_mode: int = 0o755
    dir_owner: int | str = 0


@dataclass(frozen=True, slots=True)
class SymbolicLink:
    target: str
    user: int | str = 0
    group: int | str = 0
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory, whatever is in it. What is None is left as it is, and is 0755 and of root in a new one."""

    mode: int | None = None
    user: int | str | None = None
    group: int | str | None = None
    label: str | None = None


FileTreeEntry = RegularFile | SymbolicLink | Directory


def _keys_file(user: UserEntry) -> RegularFile:
    content = "".join(f"{key.rstrip()}\n" for key in user.ssh_keys).encode()
    # Modes and owner are those of Ignition and of the machine-config-daemon.
    return RegularFile(content, 0o600, user.name, user.group or user.name, dir_mode=0o700, dir_owner=user.name)


def node_of(entry: StorageEntry) -> FileTreeEntry:
    match entry:
        case FileEntry():
            return RegularFile(entry.content, entry.mode, entry.user, entry.group)
        case DirectoryEntry():
            return Directory(entry.mode, entry.user, entry.group)
        case LinkEntry():
            return SymbolicLink(entry.target, entry.user, entry.group)


def _entries(config: MachineConfig) -> Iterator[tuple[str, FileTreeEntry]]:
    for path, entry in config.storage.items():
        yield path, node_of(entry)
    for unit in config.units.values():
        # Both would be at the same path, and the mask wins, as in the machine-config-daemon. Its drop-ins are written
        # all the same: systemd reads them again as soon as the mask is gone.
        if unit.mask:
            yield unit_path(unit.name), SymbolicLink(DEV_NULL)
        elif unit.contents is not None:
            yield unit_path(unit.name), RegularFile(unit.contents.encode())
        for name, text in unit.dropins.items():
            yield dropin_path(unit.name, name), RegularFile(text.encode())
    for user in config.users.values():
        if user.ssh_keys:
            yield ssh_keys_path(user.name, user.home), _keys_file(user)


def expand(config: MachineConfig) -> dict[str, FileTreeEntry]:
    """Return all managed paths of ``config`` in order. The reader has rejected two entries for one path."""
    return dict(sorted(_entries(config)))
