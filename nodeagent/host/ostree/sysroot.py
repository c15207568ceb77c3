# SPDX-License-Identifier: Apache-2.0
"""The deployments as libostree's own files show them, for a host without a daemon that lists them.

Facts (libostree's ``ostree-sysroot.c``, ostree-ext's ``store.rs``)
- The boot menu has the order. A staged deployment has no entry yet, and comes first.
- The directory of a deployment is CHECKSUM.SERIAL. Beside it, CHECKSUM.SERIAL.origin is a key file of GLib: in
  ``origin`` the image (``container-image-reference``) or the commit (``refspec``), in ``libostree-transient`` that it
  is pinned. rpm-ostree adds groups of its own.
- The commit of an image has the digest of the manifest and the config of the image in its metadata. A reference by tag
  would not show the digest.
- The metadata is the first member of the commit, so the last word of the commit is where the metadata ends.

No lock is taken: a program that changes the deployments replaces whole files.
"""

from __future__ import annotations

import configparser
import fcntl
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nodeagent.core.config.text.plain_json import loads
from nodeagent.core.plan.deployment import Deployment
from nodeagent.errors import Refused, Retryable, Unreconcilable
from nodeagent.host.ostree.boot_order import BootEntries, BootEntry, booted_deployment
from nodeagent.host.ostree.staged import Lock, StagedState
from nodeagent.host.ostree.vardict import MAX_BYTES, Variant, read_vardict, string
from nodeagent.reasons import Reason

_IMAGE: Final = "container-image-reference"
_DIGEST: Final = "ostree.manifest-digest"
_CONFIG: Final = "ostree.container.image-config"
_VERSION_LABEL: Final = "org.opencontainers.image.version"
# Groups that rpm-ostree adds to an origin. bootc upgrades no host that has one.
_LAYERED: Final = ("packages", "overrides", "modules", "rpmostree")
# struct flock: type, whence, start, length, pid.
_FLOCK: Final = "hhqqi4x"
# Bytes of an origin file.
_MAX_ORIGIN: Final = 1 << 16

Origin = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class SysrootFiles:
    """The deployments at one moment, in boot order. ``entries`` are by the id of the deployment."""

    deployments: tuple[Deployment, ...]
    entries: Mapping[str, BootEntry]
    booted: Deployment

    @property
    def first(self) -> Deployment:
        """The one that boots next, if it is not staged and locked."""
        return self.deployments[0]

    @property
    def staged(self) -> Deployment | None:
        return next((d for d in self.deployments if d.staged), None)

    @property
    def previous(self) -> Deployment | None:
        """The next one of the same OS after the booted one."""
        after = self.deployments[self.deployments.index(self.booted) + 1 :]
        return next((d for d in after if d.osname == self.booted.osname), None)

    def refuse_staged(self) -> None:
        """Raise ``Refused`` (``StagedByOther``) if a deployment is staged: a rollback would discard it."""
        if self.staged is not None:
            raise Refused(f"cannot roll back while {self.staged.id} is staged", reason=Reason.STAGED_BY_OTHER)


def read_sysroot(root: Path) -> SysrootFiles:
    """Read the deployments. Blocks for small files on the disk.

    Raises ``Unreconcilable`` (``NoDeployments``) if none is booted, and ``Retryable`` (``NoBootEntry``) while /boot has
    no entry for that one.
    """
    entries, lock, here = BootEntries(root).read(), StagedState(root).lock(), booted_deployment(root)
    if not here:
        raise Unreconcilable("this host was not booted from an ostree deployment", reason=Reason.NO_DEPLOYMENTS)
    if here not in entries:
        raise Retryable(f"/boot has no entry for {here}, which is booted", reason=Reason.NO_BOOT_ENTRY)
    ordered = sorted(entries, key=lambda deployment: -entries[deployment].order)
    ids = [lock.id, *ordered] if lock is not None and lock.id not in entries else ordered
    deployments = tuple(_deployment(root, each, here, lock, entries) for each in ids)
    booted = next(d for d in deployments if d.booted)
    return SysrootFiles(deployments, entries, booted)


def lock_is_held(root: Path) -> bool:
    """Return whether a program has the lock of the sysroot, without taking it. Blocks."""
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with (root / "ostree/lock").open("rb") as file:
            found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, wanted)
    except OSError:
        # Without the file nothing has locked it yet.
        return False
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


def directory_of(root: Path, deployment: str) -> Path:
    """Return the directory of the deployment with this id: the name of an OS may have a hyphen, the rest has none."""
    osname, _, name = deployment.rpartition("-")
    return root / "ostree/deploy" / osname / "deploy" / name


def read_origin(root: Path, deployment: str) -> Origin:
    """Return the groups of the origin file of a deployment; empty if it cannot be read. Blocks."""
    path = directory_of(root, deployment)
    groups = configparser.RawConfigParser(strict=False)
    try:
        with path.with_name(f"{path.name}.origin").open("rb") as file:
            groups.read_string(file.read(_MAX_ORIGIN).decode("utf-8", "replace"))
    except (OSError, configparser.Error):
        return {}
    return {name: dict(groups[name]) for name in groups.sections()}


def layers_of(origin: Origin) -> tuple[str, ...]:
    """Return what rpm-ostree puts on top of the image of a deployment, each as a line of its origin."""
    # What was removed again may leave an empty group behind.
    return tuple(
        f"[{group}] {key}={value.strip('; ')}"
        for group in _LAYERED
        for key, value in origin.get(group, {}).items()
        if value.strip("; ") not in ("", "false")
    )


def image_metadata(root: Path, commit: str) -> tuple[str, str]:
    """Return the digest of the image that a commit was made from, and its version; "" for what is not known. Blocks."""
    metadata = _metadata(root, commit)
    try:
        digest, config = string(metadata.get(_DIGEST)) or "", string(metadata.get(_CONFIG))
        version = string(metadata.get("version")) or ""
        labels = loads(config)["config"]["Labels"] if config and not version else {}
        return digest, version or str(labels.get(_VERSION_LABEL) or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", ""


def _metadata(root: Path, commit: str) -> Mapping[str, Variant]:
    path = root / "ostree/repo/objects" / commit[:2] / f"{commit[2:]}.commit"
    try:
        with path.open("rb") as file:
            data = file.read(2 * MAX_BYTES)
        # As wide as the size of the commit requires.
        word = 1 if len(data) <= 0xFF else 2 if len(data) <= 0xFFFF else 4
        return read_vardict(data[: int.from_bytes(data[-word:], "little")])
    except (OSError, ValueError):
        return {}


def _deployment(
    root: Path, deployment: str, booted: str, lock: Lock | None, entries: Mapping[str, BootEntry]
) -> Deployment:
    osname, _, name = deployment.rpartition("-")
    checksum = name.partition(".")[0]
    staged = lock if lock is not None and lock.id == deployment and deployment not in entries else None
    arguments: Sequence[str] | None = staged.kernel_arguments if staged is not None else None
    if arguments is None:
        # A shutdown uses those of the booted one for a staged one without its own.
        arguments = entries[deployment if staged is None else booted].kernel_arguments
    # It may be replaced at the same time; then the next look has the rest.
    origin = read_origin(root, deployment)
    source: Mapping[str, Any] = origin.get("origin", {})
    digest, version = image_metadata(root, checksum)
    image = source.get(_IMAGE, "")
    return Deployment(
        id=deployment,
        checksum=checksum,
        osname=osname,
        base=checksum,
        version=version,
        image=image,
        digest=digest if image else "",
        origin=source.get("refspec", ""),
        kernel_arguments=tuple(arguments),
        booted=deployment == booted,
        staged=staged is not None,
        pinned=origin.get("libostree-transient", {}).get("pinned") == "true",
        locked=staged.locked if staged is not None else None,
    )
