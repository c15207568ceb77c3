# SPDX-License-Identifier: Apache-2.0
"""A sysfs of block devices laid out in a directory, as the kernel lays it out (Documentation/ABI), and udev's database.

One host that has everything at once: the names and numbers of its stacks do not meet. What a device's files hold was
copied from running hosts where we have one (virtio), and follows the kernel's documentation elsewhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["HOST", "Block", "lay_out"]

PCI = "devices/pci0000:00"
VIRTUAL = "devices/virtual/block"


@dataclass(frozen=True)
class Block:
    name: str
    number: str
    parent: str = VIRTUAL
    disk: str = ""
    """Name of the disk, for a partition."""
    slaves: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    """Other names below /dev, as udev's database has them."""


def partition(disk: str, name: str, number: str) -> Block:
    return Block(name, number, disk=disk, files={"partition": "1"})


def dm(name: str, number: str, uuid: str, called: str, *slaves: str) -> Block:
    return Block(
        name, number, slaves=slaves, files={"dm/uuid": uuid, "dm/name": called}, links=(f"/dev/mapper/{called}",)
    )


SATA = f"{PCI}/0000:00:1f.2/ata{{0}}/host{{0}}/target{{0}}:0:0/{{0}}:0:0:0/block"
NVME = f"{PCI}/0000:00:1d.0/0000:03:00.0/nvme/nvme0"

HOST = (
    # A cloud VM: virtio, ext4 on a partition
    Block("vda", "254:0", f"{PCI}/0000:00:02.0/virtio1/block", files={"queue/rotational": "1"}),
    partition("vda", "vda4", "254:4"),
    # A worker with dm-crypt and LVM on a SATA disk: sda3 <- crypt <- LV
    Block("sda", "8:0", SATA.format(1)),
    partition("sda", "sda3", "8:3"),
    dm("dm-0", "253:0", "CRYPT-LUKS2-1f0e-luks", "luks", "sda3"),
    dm("dm-1", "253:1", "LVM-aBcD-root", "vg-root", "dm-0"),
    # A volume group over two disks
    Block("sdb", "8:16", SATA.format(2)),
    Block("sdc", "8:32", SATA.format(3)),
    dm("dm-2", "253:2", "LVM-aBcD-big", "vg-big", "sdb", "sdc"),
    # raid1 of partitions of two disks, dm-crypt on it (as Fedora CoreOS makes it); and one that lost a member
    Block("sdd", "8:48", SATA.format(4)),
    partition("sdd", "sdd4", "8:52"),
    Block("sde", "8:64", SATA.format(5)),
    partition("sde", "sde4", "8:68"),
    Block("md126", "9:126", slaves=("sdd4", "sde4"), files={"md/level": "raid1"}),
    dm("dm-3", "253:3", "CRYPT-LUKS2-2f0e-root", "root", "md126"),
    Block("md127", "9:127", slaves=("sdd4",), files={"md/level": "raid1"}),
    # Multipath over two paths with a partition by kpartx; and with one path left
    Block("sdf", "8:80", SATA.format(6)),
    Block("sdg", "8:96", SATA.format(7)),
    dm("dm-4", "253:4", "mpath-3600508b4000156d7", "mpatha", "sdf", "sdg"),
    dm("dm-5", "253:5", "part4-mpath-3600508b4000156d7", "mpatha4", "dm-4"),
    Block("sdh", "8:112", SATA.format(8)),
    dm("dm-6", "253:6", "mpath-3600508b4000156d8", "mpathb", "sdh"),
    # dm-verity: data and hashes on two partitions of one disk
    Block("sdi", "8:128", SATA.format(9)),
    partition("sdi", "sdi1", "8:129"),
    partition("sdi", "sdi2", "8:130"),
    dm("dm-7", "253:7", "VERITY-3f0e-usr", "usr", "sdi1", "sdi2"),
    # NVMe, plain and with several paths: those are hidden and have no number
    Block("nvme0n1", "259:0", NVME),
    partition("nvme0n1", "nvme0n1p4", "259:4"),
    Block("nvme1n1", "259:16", "devices/virtual/nvme-subsystem/nvme-subsys1"),
    partition("nvme1n1", "nvme1n1p4", "259:20"),
    Block("nvme1c0n1", "", f"{PCI}/0000:00:1e.0/nvme/nvme1", files={"hidden": "1"}),
    # A name with a slash in it, which sysfs cannot have
    Block("cciss!c0d0", "104:0", f"{PCI}/0000:00:03.0/cciss0"),
    partition("cciss!c0d0", "cciss!c0d0p2", "104:2"),
    # A loop device with a file that is not there any more
    Block("loop7", "7:7", files={"loop/backing_file": "/gone.img (deleted)"}),
)


def lay_out(root: Path, blocks: tuple[Block, ...] = HOST) -> None:
    """``root``/sys and ``root``/udev, for /sys and /run/udev."""
    sys, database = root / "sys", root / "udev" / "data"
    for directory in (sys / "class" / "block", sys / "block", sys / "dev" / "block", database):
        directory.mkdir(parents=True)
    places = {}
    for block in blocks:
        place = places[block.disk] / block.name if block.disk else sys / block.parent / block.name
        places[block.name] = place
        kind = "partition" if block.disk else "disk"
        place.mkdir(parents=True)
        major, _, minor = block.number.partition(":")
        numbers = f"MAJOR={major}\nMINOR={minor}\n" if block.number else ""
        (place / "uevent").write_text(f"{numbers}DEVNAME={block.name.replace('!', '/')}\nDEVTYPE={kind}\n")
        for name, content in block.files.items():
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(content + "\n")
        link(place / "subsystem", sys / "class" / "block")
        link(sys / "class" / "block" / block.name, place)
        if not block.disk:
            (place / "slaves").mkdir()
            link(sys / "block" / block.name, place)
        for slave in block.slaves:
            link(place / "slaves" / slave, places[slave])
        if block.number:
            (place / "dev").write_text(block.number + "\n")
            link(sys / "dev" / "block" / block.number, place)
            links = [f"S:{name.removeprefix('/dev/')}" for name in block.links]
            (database / f"b{block.number}").write_text("\n".join(["I:1", *links, "V:1", ""]))


def link(place: Path, target: Path) -> None:
    place.symlink_to(os.path.relpath(target, place.parent))
