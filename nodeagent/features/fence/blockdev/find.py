# SPDX-License-Identifier: Apache-2.0
"""The disks below a path of this host.

``st_dev`` is the device, unless the file system uses a number of its own: then there is no disk (composefs, overlay,
tmpfs, NFS), or it is not looked for (btrfs). On a host that boots from ostree, ``/`` often has no disk, so ``/sysroot``
is tried first.

Everything here blocks: call it in a thread. A ``Udev`` must not be used by two threads at once: libudev is not
thread-safe, but is not bound to a thread. The first one imports pyudev, and finds libudev.so.1 with ldconfig.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from nodeagent.errors import Terminal
from nodeagent.features.fence.decide.disks import BlockNode, DeviceNumber, Disks, find
from nodeagent.features.fence.reasons import FenceReason
from nodeagent.host.fs.os_errors import translated

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
    raise Terminal(f"{' and '.join(paths)}: not on a disk that is visible", reason=FenceReason.NO_DISK)


def filesystem_at(path: str, mountinfo: str) -> str:
    """Return the type of the file system of ``path``, from the text of proc_pid_mountinfo(5); "" if there is none.

    The mount is selected by its mount point, because the number that btrfs shows there is not the ``st_dev`` of its
    subvolumes.
    """
    best, filesystem = -1, ""
    # Not ``splitlines``: the kernel escapes no other line break of a mount point than this one.
    for line in mountinfo.removesuffix("\n").split("\n"):
        head, _, tail = line.partition(" - ")
        point = _unescaped(head.split(" ")[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts at one place the later one is on top.
        if inside and len(point) >= best:
            best, filesystem = len(point), tail.split(" ")[0]
    return filesystem


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


class Udev:
    """The database of udev. Raises ``Terminal`` (``NoUdev``) without libudev. Devices that disappear are absent."""

    def __init__(self) -> None:
        try:
            import pyudev

            self._context = pyudev.Context()
        except (ImportError, OSError, AttributeError) as error:
            # AttributeError: a libudev without a function that is needed.
            raise Terminal(f"cannot query udev for block devices: {error}", reason=FenceReason.NO_UDEV) from error
        self._library: Any = pyudev

    def node(self, number: DeviceNumber) -> BlockNode | None:
        try:
            device = self._library.Devices.from_device_number(self._context, "block", os.makedev(*number))
        except self._library.DeviceNotFoundError:
            return None
        if device.device_node is None:
            return None
        loop_file = _attribute(device, "loop/backing_file")
        parent = device.find_parent("block", "disk") if device.device_type == "partition" else None
        return BlockNode(
            number=number,
            path=device.device_node,
            disk=None if parent is None else number_of(parent.device_number),
            slaves=_slaves(Path(device.sys_path)),
            dm_uuid=_attribute(device, "dm/uuid"),
            md_level=_attribute(device, "md/level"),
            loop=bool(loop_file),
            backing=_backing(loop_file),
            # File systems are on the head, which belongs to the subsystem; its paths are hidden and have no number.
            nvme_multipath="/nvme-subsystem/" in device.sys_path,
        )


def number_of(device: int) -> DeviceNumber:
    """Convert a ``dev_t``, as in ``st_dev``."""
    return DeviceNumber(os.major(device), os.minor(device))


def _attribute(device: Any, name: str) -> str:
    value = device.attributes.get(name)
    return "" if value is None else os.fsdecode(value).strip()


def _slaves(sys_path: Path) -> tuple[DeviceNumber, ...]:
    slaves = []
    # A partition has no such directory.
    for entry in (sys_path / "slaves").glob("*/dev"):
        with suppress(OSError):
            major, _, minor = entry.read_text().strip().partition(":")
            slaves.append(DeviceNumber(int(major), int(minor)))
    return tuple(sorted(slaves))


def _backing(file: str) -> DeviceNumber | None:
    try:
        return number_of(Path(file).stat().st_dev) if file else None
    except OSError:
        # The file was deleted, or is in another mount namespace.
        return None
