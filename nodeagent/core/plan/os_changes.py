# SPDX-License-Identifier: Apache-2.0
"""What a staged deployment changes: packages, kernel, initramfs, kernel arguments, SELinux policy, merged files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from nodeagent.core.enumerated import enumerated

# Packages and paths in the status. The counts include all of them.
MAX_LISTED: Final = 200


class PackageChangeKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    UPGRADED = "upgraded"
    DOWNGRADED = "downgraded"


@dataclass(frozen=True, slots=True)
class PackageChange:
    """``before`` and ``after`` are versions (EVR), "" on the side without the package."""

    name: str
    kind: PackageChangeKind
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class FileCounts:
    """Files below /usr."""

    added: int
    removed: int
    changed: int


@dataclass(frozen=True, slots=True)
class OsChanges:
    """The differences of the deployment ``staged`` from the booted one. None means that a part is not known.

    ``files`` are counted where a tree has no package database. ``merged`` are managed files that the merge of /etc
    replaces with those of the new deployment. ``fetched`` is in bytes.
    """

    staged: str
    packages: Sequence[PackageChange] | None = None
    files: FileCounts | None = None
    kernel: tuple[str, str] | None = None
    # A soft reboot needs the same kernel, initramfs, arguments and policy.
    same_initramfs: bool | None = None
    same_selinux_policy: bool | None = None
    arguments_added: Sequence[str] = ()
    arguments_removed: Sequence[str] = ()
    # The merge keeps a file that differs from the old default. One that is equal to it becomes the new default, even
    # if a config put it there.
    merged: Sequence[str] | None = None
    fetched: int | None = None


def os_changes_to_dict(changes: OsChanges) -> dict[str, Any]:
    """Return the JSON object of the status. Lists are cut; ``counts`` and ``merged_count`` are complete."""
    packages = changes.packages
    return {
        "staged": changes.staged,
        "counts": None if packages is None else _counts(packages),
        "packages": None if packages is None else msgspec.to_builtins(list(packages[:MAX_LISTED])),
        "files": msgspec.to_builtins(changes.files),
        "kernel": None if changes.kernel is None else dict(zip(("before", "after"), changes.kernel, strict=True)),
        "same_initramfs": changes.same_initramfs,
        "same_selinux_policy": changes.same_selinux_policy,
        "kernel_arguments": {"added": list(changes.arguments_added), "removed": list(changes.arguments_removed)},
        "merged": None if changes.merged is None else list(changes.merged[:MAX_LISTED]),
        "merged_count": None if changes.merged is None else len(changes.merged),
        "fetched_bytes": changes.fetched,
        "summary": summary(changes),
    }


def _counts(packages: Sequence[PackageChange]) -> dict[str, int]:
    count = Counter(package.kind for package in packages)
    return {str(kind): count[kind] for kind in PackageChangeKind}


def summary(changes: OsChanges) -> str:
    """Return the changes as a phrase."""
    return "; ".join(_phrases(changes))


def _phrases(changes: OsChanges) -> Iterator[str]:
    # Without a package database, the number of files is all that is known.
    if changes.packages is not None:
        counts = [f"{count} {kind}" for kind, count in _counts(changes.packages).items() if count]
        yield f"packages {', '.join(counts)}" if counts else "packages same"
    elif (files := changes.files) is not None:
        yield f"files below /usr: {files.added} added, {files.removed} removed, {files.changed} changed"
    if changes.kernel is not None:
        before, after = changes.kernel
        yield f"kernel {before}" + (" same" if before == after else f" -> {after}")
    if changes.same_initramfs is not None:
        yield f"initramfs {'same' if changes.same_initramfs else 'differs'}"
    arguments = [
        *(f"-{argument}" for argument in changes.arguments_removed),
        *(f"+{argument}" for argument in changes.arguments_added),
    ]
    yield f"kernel arguments {' '.join(arguments) or 'same'}"
    if changes.same_selinux_policy is not None:
        yield f"SELinux policy {'same' if changes.same_selinux_policy else 'differs'}"
    if changes.merged:
        yield f"the merge of /etc replaces {enumerated(changes.merged, 1)}"
    if changes.fetched:
        yield f"{changes.fetched / 1e6:.1f} MB pulled"
