"""The disks below a path of this host.

``st_dev`` is the device, unless the file system uses a number of its own: then there is no disk (composefs, overlay,
tmpfs, NFS), or it is not looked for (btrfs). On a host that boots from ostree, ``/`` often has no disk, so ``/sysroot``
is tried first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from nodeagent.errors import Terminal
from nodeagent.fence.blockdev.udev import Udev, number_of
from nodeagent.fence.policy.disks import Disks, find
from nodeagent.host.fs.os_errors import translated
from nodeagent.reasons import Reason

__all__ = ["SYSROOT", "disks_below", "filesystem_at", "find_disks"]

SYSROOT = ("/sysroot", "/")


async def find_disks(paths: Sequence[str] = SYSROOT) -> Disks:
    """Return the disks of the first of ``paths`` that is on a disk.

    ``Terminal`` with ``NoDisk`` if none is, with ``NoUdev`` if udev cannot be queried.
    """
    return await asyncio.to_thread(disks_below, paths)


def disks_below(paths: Sequence[str], udev: Udev | None = None) -> Disks:
    """``find_disks``, blocking."""
    udev = udev or Udev()
    lookup = cache(udev.node)
    for path in paths:
        with translated("find the disk of", path):
            number = number_of(Path(path).stat().st_dev) if Path(path).exists() else None
        if number and number.major and (disks := find(number, lookup)) is not None:
            return disks
    raise Terminal(f"{' and '.join(paths)}: not on a disk that is visible", reason=Reason.NO_DISK)


def filesystem_at(path: str, mountinfo: str) -> str:
    """Return the type of the file system of ``path``, from the text of proc_pid_mountinfo(5); "" if there is none.

    It is found by mount point, because the number that btrfs shows there is not the ``st_dev`` of its subvolumes.
    """
    best, found = -1, ""
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        point = _unescaped(head.split(" ")[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts at one place the later one is on top.
        if inside and len(point) >= best:
            best, found = len(point), tail.split(" ")[0]
    return found


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
