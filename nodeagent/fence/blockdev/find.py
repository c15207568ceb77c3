"""The disks below a path of this host.

``st_dev`` is the device, unless the file system uses a number of its own. Then the mount has the device (btrfs), or
there is no disk (composefs, overlay, tmpfs, NFS). On a host that boots from ostree, ``/`` often has no disk, so
``/sysroot`` is tried first.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from nodeagent.errors import Terminal
from nodeagent.fence.blockdev.udev import Udev, number_of
from nodeagent.fence.policy.disks import DeviceNumber, Disks, find, together
from nodeagent.host.fs.os_errors import translated
from nodeagent.reasons import Reason

__all__ = ["SYSROOT", "disks_below", "find_disks", "mounted_at"]

SYSROOT = ("/sysroot", "/")
_MOUNTINFO = Path("/proc/self/mountinfo")


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
        tops = _tops(path, udev)
        found = [disks for top in tops if (disks := find(top, lookup)) is not None]
        if found:
            return together(found)
    raise Terminal(f"{' and '.join(paths)}: not on a disk that is visible", reason=Reason.NO_DISK)


def _tops(path: str, udev: Udev) -> tuple[DeviceNumber, ...]:
    with translated("find the disk of", path):
        try:
            number = number_of(Path(path).stat().st_dev)
        except FileNotFoundError:
            return ()
        if number.major:
            return (number,)
        kind, source = mounted_at(os.path.realpath(path), _MOUNTINFO.read_text())
    if kind != "btrfs" or (member := udev.named(source)) is None:
        return ()
    return udev.btrfs(member)


def mounted_at(path: str, mountinfo: str) -> tuple[str, str]:
    """Return type and source of the file system of ``path``, from the text of proc_pid_mountinfo(5); ("", "") if none.

    It is found by mount point, because the number that btrfs shows there is not the ``st_dev`` of its subvolumes.
    """
    best, found = -1, ("", "")
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        point = _unescaped(head.split(" ")[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts at one place the later one is on top.
        if inside and len(point) >= best:
            kind, source, *_options = tail.split(" ")
            best, found = len(point), (kind, _unescaped(source))
    return found


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
