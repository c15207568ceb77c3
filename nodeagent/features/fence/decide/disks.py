# SPDX-License-Identifier: Apache-2.0
"""The disks below a file system, from the block devices of the kernel.

There are two results. *The device for io.max* is found as systemd finds it (``lookup_block_device`` in its
``src/core/cgroup.c``, ``block_get_originating`` in ``src/shared/blockdev-util.c``): down through layers on one device
or on partitions of one disk, but not through layers over several disks; at the end from a partition to its disk. It
must be the one that systemd finds, or systemd limits another device than the one that is read back. *The disks whose
queues can be shaped* are all disks at the bottom.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

# Deeper stacks do not exist, and a cycle in the input must end.
_LAYERS = 16


class DeviceNumber(NamedTuple):
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}:{self.minor}"


@dataclass(frozen=True, slots=True)
class BlockNode:
    """One block device. ``path`` is its node, such as /dev/sda2, even if it is not visible to the agent."""

    number: DeviceNumber
    path: str
    # The disk that this is a partition of.
    disk: DeviceNumber | None = None
    # The devices it is made of.
    slaves: tuple[DeviceNumber, ...] = ()
    dm_uuid: str = ""
    md_level: str = ""
    loop: bool = False
    # The device of the file system with the file of a loop device, if it is visible.
    backing: DeviceNumber | None = None
    nvme_multipath: bool = False

    @property
    def kind(self) -> str:
        if self.md_level:
            return f"md {self.md_level}"
        if self.dm_uuid:
            return _DM.get(self.dm_uuid.partition("-")[0], "device mapper")
        if self.loop:
            return "loop"
        if self.nvme_multipath:
            return "NVMe multipath"
        return "device mapper" if self.slaves else "disk"


# The prefix of a dm-uuid names its creator; partitions of kpartx have "part1-mpath-...".
_DM = {"CRYPT": "dm-crypt", "LVM": "LVM", "mpath": "multipath", "VERITY": "dm-verity"}

Lookup = Callable[[DeviceNumber], BlockNode | None]


@dataclass(frozen=True, slots=True)
class Disks:
    """``limit`` is the device for io.max. ``disks`` are the disks at the bottom, sorted; several below a raid or a
    volume group."""

    limit: BlockNode
    disks: tuple[BlockNode, ...]
    # Messages for operators about unusual layers and their effect on the limits.
    notes: tuple[str, ...] = ()

    def meets(self, other: Disks) -> bool:
        """Return whether writers on both share a disk. If not, nothing has to be protected."""
        return not {disk.number for disk in self.disks}.isdisjoint(disk.number for disk in other.disks)


def find(top: DeviceNumber, lookup: Lookup) -> Disks | None:
    """Return the disks below a device; None if ``top`` or a device below it is not visible."""
    node = lookup(top)
    notes: list[str] = []
    for _ in range(_LAYERS):
        if node is None:
            return None
        below = _only(node, lookup)
        if below is None:
            break
        if node.kind == "multipath":
            notes.append("multipath with one path: systemd limits that path, where the kernel may ignore the limit")
        node = lookup(below)
    if node is None:
        return None
    if node.disk is not None and (node := lookup(node.disk)) is None:
        return None
    disks = tuple(_bottom(node, lookup))
    return Disks(node, disks, (*notes, *_notes(node, disks)))


def _only(node: BlockNode, lookup: Lookup) -> DeviceNumber | None:
    """Return the only device below; None where systemd stops."""
    if len(node.slaves) < 2:
        return node.slaves[0] if node.slaves else None
    # dm-verity has its data and its hashes on two partitions; of one disk, that is one place
    parents = {below.disk if (below := lookup(number)) else None for number in node.slaves}
    return node.slaves[-1] if len(parents) == 1 and None not in parents else None


def _bottom(top: BlockNode, lookup: Lookup) -> list[BlockNode]:
    bottom, seen, left = [], {top.number}, [top]
    while left:
        node = left.pop()
        below = {*node.slaves, *(number for number in (node.disk, node.backing) if number is not None)}
        nodes = [at for number in below if (at := lookup(number)) is not None]
        if not nodes:
            bottom.append(node)
        left += [at for at in nodes if at.number not in seen]
        seen |= below
    return sorted(bottom, key=lambda node: node.number)


def _notes(limit: BlockNode, disks: tuple[BlockNode, ...]) -> list[str]:
    notes = []
    if len(disks) > 1:
        names = ", ".join(disk.path for disk in disks)
        notes.append(f"{limit.path} ({limit.kind}) lies on several disks: {names}; limits are put on {limit.path}")
    if limit.kind == "loop":
        notes.append(f"{limit.path} is a file on another file system; that one's disk has other writers")
    if limit.kind == "NVMe multipath":
        notes.append(f"{limit.path} has several paths; their queues are not shaped")
    return notes
