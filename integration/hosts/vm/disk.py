# SPDX-License-Identifier: Apache-2.0
"""The system disk of a guest: GPT with /boot (ext4) and the root filesystem (ext4 or XFS), as Fedora CoreOS has them.

A disk is made from directories, without booting anything: ext4 by `mke2fs -d`, XFS by a copy into a loop mount.
Everything is in one file, so that the partitions share the queue of one device, as they do on a node.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from integration.hosts import process
from integration.hosts.errors import CommandFailed, Unavailable
from integration.hosts.ostree import bls
from integration.hosts.vm.qemu import Kernel

MIB = 1 << 20
BOOT_OFFSET = 1 * MIB
BOOT_SIZE = 384 * MIB  # as on Fedora CoreOS; two deployments with their kernels fit, four do not
ROOT_OFFSET = BOOT_OFFSET + BOOT_SIZE
ROOT_SIZE = 6144 * MIB
SIZE = ROOT_OFFSET + ROOT_SIZE + 1 * MIB  # the end has the second copy of the partition table
SECTOR = 512
TIMEOUT = 300.0
FILESYSTEMS = ("ext4", "xfs")


def make(disk: Path, sysroot: Path, boot: Path, filesystem: str, journal: int | None = None) -> None:
    """Make the raw `disk` with the content of two directories. `journal`: MiB of it, on ext4; None: by the size."""
    with disk.open("xb") as file:
        file.truncate(SIZE)
    table = f"label: gpt\nstart={BOOT_OFFSET // SECTOR}, size={BOOT_SIZE // SECTOR}, name=boot\n"
    table += f"start={ROOT_OFFSET // SECTOR}, size={ROOT_SIZE // SECTOR}, name=root\n"
    process.run(["sfdisk", "--quiet", str(disk)], stdin=table.encode(), timeout=TIMEOUT)
    _make_ext4(disk, boot, "boot", BOOT_OFFSET, BOOT_SIZE)
    if filesystem == "ext4":
        _make_ext4(disk, sysroot, "root", ROOT_OFFSET, ROOT_SIZE, journal)
    else:
        _make_xfs(disk, sysroot, "root", ROOT_OFFSET, ROOT_SIZE)


def make_media(disk: Path, content: Path, size: int) -> None:
    """Make a raw disk of `size` bytes without partitions: an ext4 labelled `media` with the content of a directory."""
    with disk.open("xb") as file:
        file.truncate(size)
    _make_ext4(disk, content, "media", 0, size)


def remove(directory: Path) -> None:
    """Remove a directory with ostree deployments in it, which are immutable."""
    process.run(["chattr", "-R", "-f", "-i", str(directory)], timeout=TIMEOUT, check=False)
    shutil.rmtree(directory)


def overlay(disk: Path, base: Path, form: str) -> None:
    """Make a qcow2 `disk` that has what `base` has and keeps what is written to it."""
    process.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", form, str(disk)], timeout=TIMEOUT)


def boot_entry(disk: Path, into: Path) -> Kernel:
    """Return the first entry of the qcow2 `disk`, which a boot loader boots. Copies kernel and initramfs to `into`.

    /boot is read without replaying its journal, as a boot loader reads it: libostree freezes the filesystem to make
    that safe, and if it did not, this must not hide it.
    """
    with tempfile.TemporaryDirectory(dir=into.parent) as scratch:
        image, boot = Path(scratch) / "boot.img", Path(scratch) / "boot"
        boot.mkdir()
        part = f"driver=raw,offset={BOOT_OFFSET},size={BOOT_SIZE},file.driver=qcow2,file.file.filename={disk}"
        process.run(["qemu-img", "convert", "-U", "--image-opts", part, "-O", "raw", str(image)], timeout=TIMEOUT)
        process.run(["debugfs", "-R", f"rdump / {boot}", str(image)], timeout=TIMEOUT)
        entries = bls.entries(Path(scratch))
        if not entries:
            raise Unbootable("there is no boot loader entry in /boot/loader/entries")
        fields = entries[0].fields
        into.mkdir(exist_ok=True)
        for field, name in (("linux", "vmlinuz"), ("initrd", "initrd")):
            source = boot / fields[field].lstrip("/")
            if not source.is_file():
                raise Unbootable(f"the entry {entries[0].name} names {fields[field]}, which is not in /boot")
            source.replace(into / name)
        return Kernel(into / "vmlinuz", into / "initrd", entries[0].options)


class Unbootable(Exception):
    """The disk has nothing that a boot loader could start; a real machine would be lost now."""


def _make_ext4(disk: Path, content: Path, label: str, offset: int, size: int, journal: int | None = None) -> None:
    # 64bit and metadata_csum are off for no reason but that old debugfs reads the result as well.
    process.run(
        [
            *("mke2fs", "-q", "-F", "-t", "ext4", "-L", label, "-d", str(content)),
            *("-E", f"offset={offset},lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0", "-I", "256"),
            *(() if journal is None else ("-J", f"size={journal}")),
            *(str(disk), f"{size // 1024}k"),
        ],
        timeout=TIMEOUT,
    )


def _make_xfs(disk: Path, content: Path, label: str, offset: int, size: int) -> None:
    with _loop(disk, offset, size) as device, tempfile.TemporaryDirectory() as target:
        process.run(["mkfs.xfs", "-q", "-f", "-L", label, device], timeout=TIMEOUT)
        process.run(["mount", "-t", "xfs", device, target], timeout=TIMEOUT)
        try:
            process.run(["cp", "--archive", "--reflink=never", f"{content}/.", target], timeout=TIMEOUT)
        finally:
            process.run(["umount", target], timeout=TIMEOUT)


@contextlib.contextmanager
def _loop(disk: Path, offset: int, size: int) -> Iterator[str]:
    try:
        attach = ["losetup", "--find", "--show", f"--offset={offset}", f"--sizelimit={size}", str(disk)]
        device = process.run(attach, timeout=TIMEOUT).stdout.decode().strip()
    except CommandFailed as error:
        raise Unavailable(f"an XFS filesystem is made in a loop device, and there is none here: {error}") from None
    try:
        yield device
    finally:
        process.run(["losetup", "--detach", device], timeout=TIMEOUT)
