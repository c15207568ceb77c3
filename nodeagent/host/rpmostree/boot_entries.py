"""The entries of the boot menu that belong to deployments, read from /boot.

The daemon has them too (``GetDeploymentBootConfig``), but it aborts where an entry lacks one of the keys that it
expects: a kernel without an initramfs has no ``initrd``, and a deployment that was staged without kernel arguments has
no ``options``. So the daemon is never asked. libostree finds the deployment of an entry as this module does: through
the link that the kernel argument ``ostree=`` names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeagent.core.config.kargs import split

__all__ = ["BootEntries", "BootEntry"]

_MAX_BYTES = 1 << 16  # of one entry; the kernel reads at most 4 KiB of arguments
_MAX_ENTRIES = 200


@dataclass(frozen=True, slots=True)
class BootEntry:
    """``kernel`` is the path below /boot. ``restricted``: GRUB starts it for an authenticated user only, if it has a
    list of users at all."""

    kernel_arguments: tuple[str, ...]
    kernel: str
    restricted: bool


class BootEntries:
    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self) -> Mapping[str, BootEntry]:
        """By the id of the deployment. Blocks for a few small files on the disk; call it in a thread."""
        found: dict[str, BootEntry] = {}
        for path in self._paths():
            try:
                with path.open("rb") as file:
                    values = _values(file.read(_MAX_BYTES).decode("utf-8", "replace"))
            except OSError:
                continue  # replaced while we read; the reader of this finds nothing and tries again
            arguments = tuple(split(values.get("options", "")))
            links = [token.partition("=")[2] for token in arguments if token.startswith("ostree=/")]
            if links and (deployment := self._deployment(links[-1])):
                found[deployment] = BootEntry(arguments, values.get("linux", ""), "grub_users" in values)
        return found

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
    """Of the Boot Loader Specification: a key, blanks, and the rest of the line. A key without a value counts."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.strip().replace("\t", " ").partition(" ")
        if key and not key.startswith("#"):
            values[key] = value.strip()
    return values
