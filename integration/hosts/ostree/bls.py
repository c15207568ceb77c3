# SPDX-License-Identifier: Apache-2.0
"""The boot loader entries that ostree writes, read as a boot loader would (uapi-group.org, Boot Loader Specification).

Imports nothing of this tree: `initramfs.py` runs as a program of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ENTRIES = "boot/loader/entries"


@dataclass(frozen=True, slots=True)
class Entry:
    name: str  # of its file
    fields: Mapping[str, str]

    @property
    def options(self) -> str:
        """The kernel command line."""
        return self.fields["options"]


def entries(disk: Path) -> list[Entry]:
    """All entries of a disk, the one that boots by default first: ostree gives it the highest version."""
    found = [Entry(path.name, _parse(path.read_text())) for path in (disk / ENTRIES).glob("*.conf")]
    return sorted(found, key=lambda entry: int(entry.fields.get("version", "0")), reverse=True)


def asks_password(disk: Path, entry: Entry) -> bool:
    """Return whether GRUB with its blscfg stops at a prompt: superusers are set, and the entry has a list of users."""
    config = disk / "boot/grub2/user.cfg"
    return "grub_users" in entry.fields and config.exists() and "set superusers=" in config.read_text()


def _parse(text: str) -> dict[str, str]:
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1] if len(pair) == 2 else "" for pair in pairs}
