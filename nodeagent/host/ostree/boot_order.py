# SPDX-License-Identifier: Apache-2.0
"""The boot menu in /boot by deployment, and what the next boot starts, from the files of libostree alone.

The deployment of an entry is found as libostree does it: through the link that the kernel argument ``ostree=`` names.

libostree numbers the entries by their key ``version``; the deployment with the highest one boots first
(``compare_boot_loader_configs`` in ostree-sysroot.c). The booted deployment is the directory whose device and inode
those of / are, or, with composefs, those that libostree wrote to /run/ostree-booted. The kernel argument ``ostree=``
does not name it for long: a change of the order removes the link that it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.core.config.kargs import split
from nodeagent.host.ostree.vardict import device_and_inode, read_vardict

BOOTED: Final = "run/ostree-booted"
# The key that has device and inode of the directory of a deployment.
DIRECTORY: Final = "backing-root-device-inode"

# Bytes of one entry, or of a file in /run. The kernel reads at most 4 KiB of arguments.
_MAX_BYTES = 1 << 16
_MAX_ENTRIES = 200


@dataclass(frozen=True, slots=True)
class BootEntry:
    """A boot menu entry. ``kernel`` is the path below /boot.

    ``restricted`` means that GRUB starts it for authenticated users only, if GRUB has superusers. ``tries_left`` is the
    number of boots that systemd-boot still tries, None if it does not count those of this entry. ``order`` is highest
    for the deployment that boots first.
    """

    kernel_arguments: tuple[str, ...]
    kernel: str
    restricted: bool
    tries_left: int | None = None
    order: int = 0


# The end of the name of an entry whose boots are counted: the tries that are left, and those that were made.
_TRIES = re.compile(r"\+(\d{1,9})(-\d{1,9})?\.conf", re.ASCII)


class BootEntries:
    """The boot menu in /boot."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self) -> Mapping[str, BootEntry]:
        """Return the entries by deployment id. Blocks for a few small files on the disk; call it in a thread."""
        entries: dict[str, BootEntry] = {}
        for path in self._paths():
            try:
                with path.open("rb") as file:
                    values = _values(file.read(_MAX_BYTES).decode("utf-8", "replace"))
            except OSError:
                # Replaced while it is read; the caller finds no entry and tries again.
                continue
            arguments = tuple(split(values.get("options", "")))
            links = [token.partition("=")[2] for token in arguments if token.startswith("ostree=/")]
            if links and (deployment := self._deployment(links[-1])):
                tries = _TRIES.search(path.name)
                left = int(tries[1]) if tries else None
                order = int(version) if (version := values.get("version", "")).isdecimal() else 0
                entries[deployment] = BootEntry(arguments, values.get("linux", ""), "grub_users" in values, left, order)
        return entries

    def _paths(self) -> Iterator[Path]:
        try:
            paths = sorted((self._root / "boot/loader/entries").glob("*.conf"))
        except OSError:
            return
        yield from paths[:_MAX_ENTRIES]

    def _deployment(self, link: str) -> str:
        """``link`` is /ostree/boot.N/OS/BOOTCSUM/N and points to ../../../deploy/OS/deploy/CHECKSUM.SERIAL."""
        try:
            target = (self._root / link.lstrip("/")).readlink()
        except OSError:
            return ""
        return f"{target.parts[-3]}-{target.name}" if len(target.parts) >= 3 else ""


def _values(text: str) -> dict[str, str]:
    """Parse an entry of the Boot Loader Specification: a key, blanks, the rest of the line. Values may be empty."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.strip().replace("\t", " ").partition(" ")
        if key and not key.startswith("#"):
            values[key] = value.strip()
    return values


def other_boots_first(root: Path) -> str:
    """Return the id of the deployment that the next boot starts; "" if that is booted, or one of both is unknown.

    Blocks for a few small files on the disk; call it in a thread.
    """
    entries = BootEntries(root).read()
    first = max(entries, key=lambda deployment: entries[deployment].order, default="")
    booted = booted_deployment(root)
    return first if booted and first != booted else ""


def booted_deployment(root: Path) -> str:
    """Return the id of the booted deployment, "" if none is booted. Blocks."""
    ours = set(_roots(root))
    for directory in root.glob("ostree/deploy/*/deploy/*.*"):
        with suppress(OSError):
            info = directory.stat()
            # Beside each directory is a file with its origin.
            if directory.is_dir() and (info.st_dev, info.st_ino) in ours:
                return f"{directory.parents[1].name}-{directory.name}"
    return ""


def _roots(root: Path) -> Iterator[tuple[int, int]]:
    with suppress(OSError):
        info = root.stat()
        yield info.st_dev, info.st_ino
    with suppress(OSError, ValueError), (root / BOOTED).open("rb") as file:
        directory = device_and_inode(read_vardict(file.read(_MAX_BYTES)).get(DIRECTORY))
        if directory is not None:
            yield directory
