# SPDX-License-Identifier: Apache-2.0
"""The deployments of the host: from the dictionaries of the daemon and the boot menu.

An absent key of the daemon's dictionary has a meaning. A deployment from a container has no ``origin``, one from an
ostree remote no ``container-image-reference``; without layered packages there is no ``base-checksum``.
``finalization-locked`` is not used: since rpm-ostree 2024.6 it is missing for locked deployments too, because libostree
keeps the lock elsewhere (``staging``). No dictionary has the kernel arguments; they come from the boot menu.

The boot menu entries are read from /boot. The daemon offers them too (``GetDeploymentBootConfig``), but it aborts if an
entry lacks an expected key: a kernel without an initramfs has no ``initrd``, and a deployment that was staged without
kernel arguments has no ``options``. The deployment of an entry is found as libostree does it: through the link that the
kernel argument ``ostree=`` names.

GRUB asks for a password before it boots an entry if a list of superusers is set and the entry has a list of users, even
an empty one (the key ``grub_users``; Fedora's ``blscfg`` starts all other entries for all users). CoreOS adds that key
to each entry except the default one, and keeps it when such an entry becomes the default: after a rollback that only
changes the order, the host waits at the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nodeagent.core.config.kargs import split
from nodeagent.core.plan.deployment import Deployment
from nodeagent.errors import Retryable, Terminal
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.rpmostree.staging import Lock
from nodeagent.reasons import Reason

_DIRECTORIES = ("boot/grub2", "boot/grub")
_NAMES = ("user.cfg", "custom.cfg", "grub.cfg")
_EFI = "boot/efi/EFI"
# Bytes of one file.
_MAX = 1 << 20

# Each grub.cfg sets the superuser if user.cfg has a password, so user.cfg decides.
_CONDITIONAL = re.compile(r'if \[ -n "?\$\{?GRUB2_PASSWORD\}?"? \]; *then.*?^\s*fi$', re.DOTALL | re.MULTILINE)
_SET = re.compile(r"""^\s*(set\s+superusers=["']?[^\s"']|GRUB2_PASSWORD=["']?[^\s"'])""", re.MULTILINE)


def has_superusers(root: Path) -> bool:
    """Return whether GRUB has superusers. A file that cannot be read counts as True.

    Blocks for a few files on the disk; call it in a thread.
    """
    for path in _files(root):
        try:
            text = read_regular(path, _MAX).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        # The caller then deploys the tree again, which takes longer and needs no password.
        except OSError:
            return True
        if _SET.search(_CONDITIONAL.sub("", text)):
            return True
    return False


def _files(root: Path) -> Iterator[Path]:
    for directory in _DIRECTORIES:
        yield from (root / directory / name for name in _NAMES)
    try:
        vendors = sorted((root / _EFI).iterdir())
    except OSError:
        return
    # RHEL 8 and older Fedora have the whole menu there.
    yield from (vendor / name for vendor in vendors for name in _NAMES)


# Bytes of one entry. The kernel reads at most 4 KiB of arguments.
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


def read_all(
    raw: Sequence[Mapping[str, Any]], *, entries: Mapping[str, BootEntry], staged: Lock | None
) -> tuple[Deployment, ...]:
    """Return all deployments in boot order.

    ``entries`` are by deployment id. A staged deployment has no entry before it is finalized; ``staged`` is its state.
    Raises ``Terminal`` (``UnexpectedReply``) and ``Retryable`` (``NoBootEntry``).
    """
    deployments = [_deployment(values) for values in raw]
    booted = next((d for d in deployments if d.booted), None)
    if booted is not None and booted.id not in entries:
        raise Retryable(f"/boot has no entry for {booted.id}, which is booted", reason=Reason.NO_BOOT_ENTRY)
    of_booted = entries[booted.id].kernel_arguments if booted is not None else ()

    def completed(deployment: Deployment) -> Deployment:
        if not deployment.staged:
            entry = entries.get(deployment.id)
            return replace(deployment, kernel_arguments=entry.kernel_arguments if entry else ())
        if staged is None or staged.id != deployment.id:
            return deployment
        arguments = of_booted if staged.kernel_arguments is None else staged.kernel_arguments
        return replace(deployment, kernel_arguments=arguments, locked=staged.locked)

    return tuple(map(completed, deployments))


def first_of_booted(deployments: Sequence[Deployment]) -> Deployment | None:
    """Return the deployment from which the daemon makes a new one: the first of the booted OS in boot order."""
    osname = next((d.osname for d in deployments if d.booted), None)
    return next((d for d in deployments if d.osname == osname), None)


def _deployment(values: Mapping[str, Any]) -> Deployment:
    try:
        checksum = str(values["checksum"])
        return Deployment(
            id=str(values["id"]),
            checksum=checksum,
            osname=str(values["osname"]),
            base=str(values.get("base-checksum", "")) or checksum,
            version=str(values.get("version", "")),
            image=str(values.get("container-image-reference", "")),
            digest=str(values.get("container-image-reference-digest", "")),
            origin=str(values.get("origin", "")),
            # The requested packages. A package that the image includes is requested, but not layered.
            packages=frozenset(map(str, values.get("requested-packages", ()))),
            removed=frozenset(map(str, values.get("requested-base-removals", ()))),
            booted=bool(values.get("booted", False)),
            staged=bool(values.get("staged", False)),
            pinned=bool(values.get("pinned", False)),
        )
    except (KeyError, TypeError) as error:
        message = f"unexpected deployment from rpm-ostree: {error}"
        raise Terminal(message, reason=Reason.UNEXPECTED_REPLY) from error
