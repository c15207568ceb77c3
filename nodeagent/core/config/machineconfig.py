# SPDX-License-Identifier: Apache-2.0
"""The desired state of a host as comparable data, after parsing and validation.

Names follow the Ignition and MachineConfig schemas. Differences without a meaning (order of entries, null or empty,
encoding of the contents, ``""`` or ``default``) are normalised, so that two equal configs need no change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from typing import Final

import msgspec

CORE_USER: Final = "core"

# What of a config a deployment brings: attributes, and keys of its text.
OS_FIELDS: Final = (
    "kernel_arguments",
    "absent_arguments",
    "extensions",
    "kernel_type",
    "os_image_url",
    "extensions_image",
)
OS_KEYS: Final = ("baseOSExtensionsContainerImage", "extensions", "kernelArguments", "kernelType", "osImageURL")
# The machine-config-daemon rejects setuid, setgid and sticky as well.
MAX_MODE: Final = 0o777
# The next ID means "unchanged" to chown(2).
MAX_ID: Final = 2**32 - 2


# A struct, because a config has thousands of files, and creating a frozen dataclass takes five times as long.
class FileEntry(msgspec.Struct, frozen=True, gc=False):
    """A regular file. ``content`` is decoded (base64, percent, gzip); ``mode`` is 0 to 0o777."""

    path: str
    content: bytes
    mode: int = 0o644
    user: int | str = 0
    group: int | str = 0
    overwrite: bool = True

    def __repr__(self) -> str:
        # The content can be a pull secret, which must not get into a log.
        owner = f"{self.user}:{self.group}"
        return f"FileEntry({self.path!r}, {len(self.content)} bytes, {self.mode:#o}, {owner}, {self.overwrite})"


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """A directory. What is None stays as the host has it; a new directory is 0755 and of root."""

    path: str
    mode: int | None = None
    user: int | str | None = None
    group: int | str | None = None


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """A symbolic link. ``target`` is absolute, or relative to the directory of the link.

    ``source`` is the URL of what the link leads to, "" if it is not fetched: see ``core.config.fetched``.
    """

    path: str
    target: str
    user: int | str = 0
    group: int | str = 0
    # The target has the digest, so that another server of the same content is no change.
    source: str = field(default="", compare=False)


StorageEntry = FileEntry | DirectoryEntry | LinkEntry


@dataclass(frozen=True, slots=True)
class UnitEntry:
    """A systemd unit. ``contents`` None: the unit belongs to the OS. ``enabled`` None: the preset applies."""

    name: str
    contents: str | None = field(default=None, repr=False)
    enabled: bool | None = None
    mask: bool = False
    dropins: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Account:
    """How an account is created. Nothing of one that exists changes with it; "" and None: as useradd(8) chooses."""

    uid: int | None = None
    gecos: str = ""
    shell: str = ""
    create_home: bool = True
    no_log_init: bool = False


@dataclass(frozen=True, slots=True)
class UserEntry:
    """A user. ``account`` is None for ``core``, whose account is that of the OS, and for a part of an entry.

    ``home`` "" is ``/home`` and the name, ``group`` "" a group of that name; ``groups`` are those beside it.
    """

    name: str
    ssh_keys: tuple[str, ...] = ()
    password_hash: str | None = field(default=None, repr=False)
    home: str = ""
    group: str = ""
    groups: tuple[str, ...] = ()
    account: Account | None = None


@dataclass(frozen=True, slots=True)
class MachineConfig:
    """A whole config.

    ``unapplied`` are the sections that are not applied (``storage.luks[data]``, ...), each with a digest of its
    canonical form, so that a change of them is rejected instead of ignored.

    ``absent_arguments`` are kernel arguments that the host must not have, sorted.

    ``origins`` are the names of the MachineConfigs that an entry comes from, by its id (``file:/etc/x``); empty for a
    config that was not merged on this host. ``pool`` is that of its label, which those that are parts of one have.
    """

    name: str
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    units: Mapping[str, UnitEntry] = field(default_factory=dict)
    users: Mapping[str, UserEntry] = field(default_factory=dict)
    kernel_arguments: tuple[str, ...] = ()
    absent_arguments: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    kernel_type: str = "default"
    fips: bool = False
    os_image_url: str = ""
    extensions_image: str = ""
    directories: Mapping[str, DirectoryEntry] = field(default_factory=dict)
    links: Mapping[str, LinkEntry] = field(default_factory=dict)
    unapplied: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False)
    pool: str = field(default="", compare=False)

    @property
    def storage(self) -> Mapping[str, StorageEntry]:
        """The files, directories and links. Their ids are ``file:`` and the path, which only one of them has."""
        if not (self.directories or self.links):
            return self.files
        return {**self.files, **self.directories, **self.links}

    @property
    def named_arguments(self) -> tuple[str, ...]:
        """All kernel arguments that the config decides about."""
        return (*self.kernel_arguments, *self.absent_arguments)

    @property
    def argument_rules(self) -> tuple[tuple[str, bool], ...]:
        """Each of them, and whether the host must have it."""
        absent = ((token, False) for token in self.absent_arguments)
        return (*((token, True) for token in self.kernel_arguments), *absent)


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """The text of a MachineConfig, as kept in the store. ``digest`` is the SHA-256 of ``text`` in hex.

    The store keeps no parsed form, so that a newer version reads what an older one stored.
    """

    name: str
    digest: str
    text: bytes = field(repr=False)


# Names are not part of the digest; the other fields are written in a canonical form.
APART = frozenset({"name", "files", "units", "users", "directories", "links", "origins", "pool", "absent_arguments"})


def meaning(config: MachineConfig) -> str:
    """Return the digest of what a config requires of a host, a SHA-256 in hex.

    It does not depend on the name, annotations, labels and time stamps, the order of keys and entries, the encoding of
    contents, or the choice of YAML or JSON. Two configs with the same digest fail for the same cause. Takes
    milliseconds for a large config: do not call it in the event loop.
    """
    form = {
        "files": [_file(config.files[path]) for path in sorted(config.files)],
        "units": [_unit(config.units[name]) for name in sorted(config.units)],
        "users": [_user(config.users[name]) for name in sorted(config.users)],
        **{field.name: getattr(config, field.name) for field in fields(config) if field.name not in APART},
    }
    # The digests of configs without them are those of earlier versions.
    if config.directories:
        form["directories"] = [_directory(config.directories[path]) for path in sorted(config.directories)]
    if config.links:
        form["links"] = [_link(config.links[path]) for path in sorted(config.links)]
    if config.absent_arguments:
        form["absent_arguments"] = config.absent_arguments
    text = json.dumps(form, sort_keys=True, separators=(",", ":"), default=dict)
    return hashlib.sha256(text.encode()).hexdigest()


def _file(entry: FileEntry) -> list[object]:
    # ``overwrite`` has no effect on a host.
    return [entry.path, hashlib.sha256(entry.content).hexdigest(), entry.mode, _id(entry.user), _id(entry.group)]


def _directory(entry: DirectoryEntry) -> list[object]:
    return [entry.path, entry.mode, entry.user, entry.group]


def _link(entry: LinkEntry) -> list[object]:
    return [entry.path, entry.target, _id(entry.user), _id(entry.group)]


def _id(owner: int | str) -> int | str:
    return 0 if owner == "root" else owner


def _unit(entry: UnitEntry) -> list[object]:
    return [entry.name, entry.contents, entry.enabled, entry.mask, sorted(entry.dropins.items())]


def _user(entry: UserEntry) -> list[object]:
    form: list[object] = [entry.name, entry.ssh_keys, entry.password_hash]
    if entry.account is not None:
        form += [entry.home, entry.group, entry.groups, astuple(entry.account)]
    return form


def coming_accounts(config: MachineConfig) -> frozenset[str]:
    """Return the names of the users and groups that exist as soon as the accounts of ``config`` do."""
    users = [user for user in config.users.values() if user.account is not None]
    return frozenset(name for user in users for name in (user.name, user.group or user.name))


def with_os_of(old: MachineConfig, new: MachineConfig) -> MachineConfig:
    """Return ``new`` with the OS of ``old``."""
    return replace(new, **{name: getattr(old, name) for name in OS_FIELDS})
