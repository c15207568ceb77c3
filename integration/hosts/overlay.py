# SPDX-License-Identifier: Apache-2.0
"""Overlay mounts: many hosts share one read-only image and each keeps only what it changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from integration.hosts import process
from integration.hosts.errors import CommandFailed, Unavailable

# redirect_dir: without it, renaming a directory of the image fails with EXDEV, which no real host would do.
OPTIONS = "redirect_dir=on,index=off,metacopy=off"


def mount(lowers: Sequence[Path], upper: Path, target: Path) -> None:
    """Mount `lowers` (bottom first) with `upper` above them at `target`. A sibling `work` of `upper` is made."""
    work = upper.with_name("work")
    for directory in (upper, work, target):
        directory.mkdir(parents=True, exist_ok=True)
    upper.chmod(0o755)  # it becomes the guest's `/`
    lower = ":".join(str(path) for path in reversed(lowers))
    options = f"lowerdir={lower},upperdir={upper},workdir={work},{OPTIONS}"
    try:
        process.run(["mount", "-t", "overlay", "overlay", "-o", options, str(target)], timeout=10)
    except CommandFailed as error:
        raise Unavailable(
            f"no overlay mount with its upper layer in {upper.parent} "
            f"(set XDG_CACHE_HOME to a directory on a disk filesystem): {error}"
        ) from None


def mount_tmpfs(target: Path, size: str) -> None:
    """Mount a tmpfs of at most `size` (as in mount(8): 64m) at `target`."""
    target.mkdir(parents=True, exist_ok=True)
    process.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(target)], timeout=10)


def unmount_below(directory: Path) -> None:
    """Unmount everything at or below `directory`, the last mounted first."""
    empty = 0
    # The kernel's list can lack a line while other hosts mount and unmount: believe it when it says so twice.
    while empty < 2:
        empty = 0 if _unmount_listed(str(directory.resolve())) else empty + 1


def _unmount_listed(prefix: str) -> bool:
    """Return whether any was listed."""
    with Path("/proc/self/mountinfo").open(encoding="utf-8") as table:
        points = [line.split()[4].encode().decode("unicode_escape") for line in table]
    ours = [point for point in reversed(points) if point == prefix or point.startswith(prefix + "/")]
    for point in ours:
        try:
            process.run(["umount", point], timeout=10)
        except CommandFailed:
            # Another process uses it, such as a shell: detach it now, it vanishes when that process ends.
            process.run(["umount", "--lazy", point], timeout=10)
    return bool(ours)


def remove_tree(directory: Path) -> None:
    """Remove `directory` with whatever tests left in it. Nothing may be mounted there any more."""
    try:
        shutil.rmtree(directory)
    except PermissionError:
        process.run(["chattr", "-R", "-f", "-i", "-a", str(directory)], timeout=60, check=False)
        shutil.rmtree(directory)
    except FileNotFoundError:
        return


def scratch_of(layer: Path) -> Path:
    """Return the directory in which `fill` makes `layer`."""
    return layer.with_name(layer.name + ".overlay")


def fill(lowers: Sequence[Path], layer: Path, change: Callable[[Path], None]) -> None:
    """Make `layer` (a new directory) hold what `change` does to the tree of `lowers`; it gets the merged root."""
    scratch = scratch_of(layer)
    upper, root = scratch / "upper", scratch / "root"
    mount(lowers, upper, root)
    try:
        change(root)
    finally:
        unmount_below(scratch)
    upper.rename(layer)
    remove_tree(scratch)
