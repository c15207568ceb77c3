# SPDX-License-Identifier: Apache-2.0
"""Compare the tree of a staged deployment with that of the booted one, almost without reading files.

Deployments are hard links into one repository, so files with the same inode have the same content, mode and label.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from nodeagent.core.config.file_tree import FileTreeEntry, RegularFile
from nodeagent.core.plan.deployment import Deployment
from nodeagent.core.plan.kernel_start import LINK_DIRECTORY, TREE_PATHS
from nodeagent.core.plan.os_changes import FileCounts, OsChanges, PackageChange

# Entries of a tree. A node OS has 60,000; a larger tree is not compared.
MAX_ENTRIES: Final = 1_000_000

# Bytes of a default of /etc that is compared with a managed file.
MAX_BYTES: Final = 1 << 20

_DATABASES: Final = ("usr/share/rpm", "usr/lib/sysimage/rpm")
_DATABASE_FILES: Final = ("rpmdb.sqlite", "Packages", "Packages.db")


def argument_changes(before: Sequence[str], after: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the kernel arguments that are added and removed, without the one that names the deployment."""
    was, now = (Counter(token for token in side if not token.startswith("ostree=")) for side in (before, after))
    return [*(now - was).elements()], [*(was - now).elements()]


def compare(
    trees: Trees,
    booted: Deployment,
    staged: Deployment,
    packages: tuple[PackageChange, ...] | None,
    managed: Mapping[str, FileTreeEntry] | None,
) -> OsChanges:
    """Return how ``staged`` differs from ``booted``; parts that cannot be read are unknown. Blocks.

    ``packages`` are those that differ, None if that is not known: then files are counted. ``managed`` are the entries
    of the new config, None if it is not known.
    """
    added, removed = argument_changes(booted.kernel_arguments, staged.kernel_arguments)
    return OsChanges(
        staged.id,
        packages,
        trees.files() if packages is None else None,
        trees.kernel(),
        trees.same_initramfs(),
        trees.same_selinux_policy(),
        added,
        removed,
        None if managed is None else trees.merged(managed),
    )


class Trees:
    """The trees of two deployments, by their ids (``OSNAME-CHECKSUM.SERIAL``). The methods block."""

    def __init__(self, root: Path, osname: str, booted: str, staged: str) -> None:
        deploy = root / "ostree/deploy" / osname / "deploy"
        self._booted, self._staged = (deploy / deployment.removeprefix(f"{osname}-") for deployment in (booted, staged))

    def have_packages(self) -> bool:
        """Return whether both trees have a package database: without one there is nothing to compare."""
        return all(any((tree / path / name).exists() for path in _DATABASES for name in _DATABASE_FILES)
                   for tree in (self._booted, self._staged))  # fmt: skip

    def kernel(self) -> tuple[str, str] | None:
        sides = [_kernel(tree) for tree in (self._booted, self._staged)]
        return (sides[0], sides[1]) if all(sides) else None

    def same_initramfs(self) -> bool | None:
        return _same([_modules_file(tree, "initramfs.img") for tree in (self._booted, self._staged)])

    def same_selinux_policy(self) -> bool | None:
        sides = [_policies(tree) for tree in (self._booted, self._staged)]
        return sides[0] == sides[1] if all(sides) else None

    def kernel_starts(self) -> list[tuple[str, str]]:
        """Return the paths that differ and that only a starting kernel reads, each with the cause.

        A path that cannot be read, or is too large, counts as different; so does a tree without a kernel.
        """
        differences = [] if self.kernel() else [("usr/lib/modules", "the kernel is not known")]
        for path, cause in TREE_PATHS.items():
            try:
                before, after = (_below(tree / path) for tree in (self._booted, self._staged))
            except OSError as error:
                differences.append((path, f"it cannot be read, {error.strerror}"))
                continue
            if before is None or before != after:
                differences.append((path, cause))
        directory, suffix = LINK_DIRECTORY
        try:
            sides = [_names_with(tree / directory, suffix) for tree in (self._booted, self._staged)]
        except OSError as error:
            return [*differences, (directory, f"it cannot be read, {error.strerror}")]
        return differences if sides[0] == sides[1] else [*differences, (directory, "names of network interfaces")]

    def files(self) -> FileCounts | None:
        """Count the files of /usr that differ; None for a tree that cannot be read, or is too large."""
        try:
            before, after = (_inodes(tree / "usr") for tree in (self._booted, self._staged))
        except OSError:
            return None
        if before is None or after is None:
            return None
        changed = sum(before[path] != after[path] for path in before.keys() & after.keys())
        return FileCounts(len(after.keys() - before.keys()), len(before.keys() - after.keys()), changed)

    def merged(self, managed: Mapping[str, FileTreeEntry]) -> tuple[str, ...]:
        """Return the files of /etc in ``managed`` that equal the booted default while the staged default differs.

        The merge takes them for unchanged, and replaces them.
        """
        return tuple(sorted(path for path, entry in managed.items() if self._is_replaced(path, entry)))

    def _is_replaced(self, path: str, entry: FileTreeEntry) -> bool:
        # Only /etc is merged. Of a link there is no content to compare.
        if not path.startswith("/etc/") or not isinstance(entry, RegularFile):
            return False
        default, other = (tree / "usr" / path.lstrip("/") for tree in (self._booted, self._staged))
        try:
            info = default.lstat()
            if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES or info.st_size != len(entry.content):
                return False
            if stat.S_IMODE(info.st_mode) != entry.mode or default.read_bytes() != entry.content:
                return False
        except OSError:
            return False
        return _same([default, other]) is not True


def _modules(tree: Path) -> list[Path]:
    try:
        directories = (tree / "usr/lib/modules").iterdir()
        return sorted(directory for directory in directories if (directory / "vmlinuz").exists())
    except OSError:
        return []


def _kernel(tree: Path) -> str:
    return next((directory.name for directory in _modules(tree)), "")


def _modules_file(tree: Path, name: str) -> Path:
    return next(iter(_modules(tree)), tree / "usr/lib/modules/none") / name


def _same(paths: Sequence[Path]) -> bool | None:
    """Return whether two files are one; None if the first does not exist."""
    try:
        first = paths[0].lstat()
    except OSError:
        return None
    try:
        other = paths[1].lstat()
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (other.st_dev, other.st_ino)


def _policies(tree: Path) -> dict[str, int]:
    """Return the compiled policies of all types, as path to inode."""
    top = tree / "usr/etc/selinux"
    return {str(path.relative_to(top)): path.lstat().st_ino for path in top.glob("*/policy/policy.*")}


def _names_with(directory: Path, suffix: str) -> dict[str, dict[str, tuple[int, str]] | None]:
    """Return ``_below`` of the files with this suffix and of the directories of their drop-ins, by name."""
    return {path.name: _below(path) for path in directory.glob(f"*{suffix}*")}


def _below(path: Path) -> dict[str, tuple[int, str]] | None:
    """Return ``_inodes`` of a directory, or the same for one file. A path that does not exist is empty."""
    try:
        mode = path.lstat()
    except FileNotFoundError:
        return {}
    if stat.S_ISDIR(mode.st_mode):
        return _inodes(path)
    return {"": (0, str(path.readlink())) if stat.S_ISLNK(mode.st_mode) else (mode.st_ino, "")}


def _inodes(top: Path) -> dict[str, tuple[int, str]] | None:
    """Return path to inode of files, and to the target of links. None for too many entries."""
    inodes: dict[str, tuple[int, str]] = {}
    for path, entry in _walk(str(top), ""):
        if len(inodes) >= MAX_ENTRIES:
            return None
        is_link = entry.is_symlink()
        inodes[path] = (0, str(Path(entry.path).readlink())) if is_link else (entry.inode(), "")
    return inodes


def _walk(top: str, below: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(f"{top}/{below}") as entries:
        for entry in entries:
            path = f"{below}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                # The defaults of /etc are merged with the files of the host.
                if path != "etc":
                    yield from _walk(top, f"{path}/")
            else:
                yield path, entry
