"""A MachineConfig as plain, comparable data: what a host should be, after parsing and validation.

Names follow the Ignition and MachineConfig schemas. Everything that does not change the meaning (order of entries,
nil against empty, encoding of the bytes, ``""`` against ``default``) is already normalised away here, so that ``==``
means "nothing to do".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

__all__ = [
    "CORE_USER",
    "MAX_ID",
    "MAX_MODE",
    "ConfigSource",
    "FileEntry",
    "MachineConfig",
    "UnitEntry",
    "UserEntry",
]

CORE_USER: Final = "core"
MAX_MODE: Final = 0o777  # setuid, setgid and sticky are refused as the machine-config-daemon does
MAX_ID: Final = 2**32 - 2  # the one above means "unchanged" to chown(2)


class FileEntry(msgspec.Struct, frozen=True, gc=False):
    """A regular file. ``content`` is decoded (base64, percent, gzip); ``mode`` is 0 to 0o777.

    A struct, because a config has thousands of them and a frozen dataclass takes five times as long to build.
    """

    path: str
    content: bytes
    mode: int = 0o644
    user: int | str = 0
    group: int | str = 0
    overwrite: bool = True

    def __repr__(self) -> str:
        # The content may be a pull secret: never in a log by accident.
        owner = f"{self.user}:{self.group}"
        return f"FileEntry({self.path!r}, {len(self.content)} bytes, {self.mode:#o}, {owner}, {self.overwrite})"


@dataclass(frozen=True, slots=True)
class UnitEntry:
    """A systemd unit. ``contents`` None: the unit comes from the OS. ``enabled`` None: the preset decides."""

    name: str
    contents: str | None = field(default=None, repr=False)
    enabled: bool | None = None
    mask: bool = False
    dropins: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class UserEntry:
    name: str
    ssh_keys: tuple[str, ...] = ()
    password_hash: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class MachineConfig:
    """``unapplied`` holds the sections that we do not apply (``storage.luks[data]``, ...), each with a digest of its
    canonical form, so that a change in them is refused instead of ignored."""

    name: str
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    units: Mapping[str, UnitEntry] = field(default_factory=dict)
    users: Mapping[str, UserEntry] = field(default_factory=dict)
    kernel_arguments: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    kernel_type: str = "default"
    fips: bool = False
    os_image_url: str = ""
    extensions_image: str = ""
    unapplied: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """The text a MachineConfig was parsed from, as kept in the store: parsing it again is the only way back, so a
    newer agent reads what an older one stored. ``digest`` is the SHA-256 of ``text`` in hex."""

    name: str
    digest: str
    text: bytes = field(repr=False)
