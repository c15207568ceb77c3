# SPDX-License-Identifier: Apache-2.0
"""What keeps a directory from taking a file that stays: its mount, its file system, its attributes.

Only root decides about these, so they count below directories of other users as well.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
from pathlib import Path
from typing import Final

# FS_IOC_GETFLAGS and its bits, linux/fs.h. Architectures with another number answer ENOTTY, as file systems without
# attributes do.
_GET_FLAGS: Final = 0x80086601
_APPEND_ONLY: Final = 0x20
_IMMUTABLE: Final = 0x10
# In mountinfo, blanks and backslashes of a path (proc_pid_mountinfo(5)).
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
# Their files are in memory.
_IN_MEMORY: Final = ("tmpfs", "ramfs")
# A host whose /etc is in memory has chosen to keep nothing.
_STATE: Final = ("/", "/etc")

MOUNTINFO: Final = Path("/proc/self/mountinfo")


class Mounts:
    """The mounts of this process at one moment."""

    def __init__(self, root: str, mountinfo: str | None = None) -> None:
        text = MOUNTINFO.read_text(errors="replace") if mountinfo is None else mountinfo
        lines = [line.split(" ") for line in text.splitlines()]
        self._root = root.rstrip("/")
        self._points = frozenset(_OCTAL.sub(lambda escape: chr(int(escape[1], 8)), line[4]) for line in lines)
        kinds = {line[2]: line[line.index("-") + 1] for line in lines}
        devices = {device.partition(":")[::2] for device, kind in kinds.items() if kind in _IN_MEMORY}
        self._in_memory = {os.makedev(int(major), int(minor)) for major, minor in devices} - _devices(root)

    def is_point(self, path: str) -> bool:
        """Return whether something is mounted at the resolved ``path``, which cannot be replaced then."""
        return self._root + path in self._points

    def obstacle(self, fd: int, place: str) -> str:
        """Return why the open directory ``place`` takes no file that is still there after a boot; "" if it does.

        Raises ``OSError``.
        """
        if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
            return f"{place} is on a file system that is mounted read-only for nodeagent"
        if os.fstat(fd).st_dev in self._in_memory:
            return f"{place} is in memory (tmpfs), so that the file would be missing after a boot"
        if fixed := attribute(fd):
            return f"{place} is {fixed} (lsattr -d {place}), so that nothing can be created in it"
        return ""


def attribute(fd: int) -> str:
    """Return the attribute of an open file or directory that keeps root from changing it, "" if there is none."""
    try:
        (flags,) = struct.unpack_from("=I", fcntl.ioctl(fd, _GET_FLAGS, bytes(8)))
    except OSError:
        return ""
    if flags & _IMMUTABLE:
        return "immutable"
    return "append-only" if flags & _APPEND_ONLY else ""


def _devices(root: str) -> set[int]:
    devices: set[int] = set()
    for place in _STATE:
        try:
            devices.add(Path(root + place).stat().st_dev)
        except OSError:
            # A root without /etc has one device less.
            continue
    return devices
