# SPDX-License-Identifier: Apache-2.0
"""The initramfs of the guest: finds the root filesystem, lets ostree's own program prepare it, and switches to it.

dracut's starts a whole systemd with udev before that. Without KVM this takes longer than the rest of the boot, and
nothing that is tested here depends on it: what decides which deployment is booted is `ostree-prepare-root`, and that is
the real one. The image is not compressed, because the guest would unpack it slower than the host reads it.
"""

from __future__ import annotations

import lzma
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from integration.hosts import process

PREPARE_ROOT = "/usr/lib/ostree/ostree-prepare-root"
BUSYBOX = "/usr/bin/busybox"  # static: each start of an ordinary program costs a guest without KVM a fifth of a second
# ext4 and the rest of virtio are built into the kernel. xfs takes seconds to load: only with a root on XFS it is.
MODULES = ("drivers/block/virtio_blk",)
XFS_MODULES = ("fs/xfs/xfs",)
COMPOSEFS_MODULES = ("drivers/block/loop", "fs/erofs/erofs", "fs/overlayfs/overlay")
PREPARE_ROOT_CONF = "/usr/lib/ostree/prepare-root.conf"
DIRECTORIES = ("dev", "proc", "sys", "run", "sysroot", "tmp")
TIMEOUT = 30.0

# /run moves with the root: ostree leaves there for the booted system that, and what, it prepared.
INIT = """\
#!{busybox} sh
busybox mount -t devtmpfs -o mode=0755,nosuid devtmpfs /dev
busybox mount -t proc -o nosuid,nodev,noexec proc /proc
busybox mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
busybox mount -t tmpfs -o mode=0755,nosuid,nodev tmpfs /run
die() {{ echo "initramfs: $1" >/dev/console; exit 1; }}
type=ext4
for argument in $(busybox cat /proc/cmdline); do
    case $argument in
        root=*) root=${{argument#root=}} ;;
        rootfstype=*) type=${{argument#rootfstype=}} ;;
    esac
done
for module in {modules}; do
    case $module in
        {optional}) [ $type = xfs ] || continue ;;
    esac
    busybox insmod "/modules/$module" || die "no module $module"
done
tries=0
until busybox mount -t $type -o rw "$root" /sysroot; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || die "no root filesystem $root"
    busybox usleep 50000
done
{prepare_root} /sysroot || die "ostree-prepare-root failed"
for mounted in dev proc sys run; do busybox mount -o move "/$mounted" "/sysroot/$mounted"; done
exec busybox switch_root /sysroot /sbin/init
"""


def build(root: Path, version: str) -> bytes:
    """The image for the kernel `version` of `root`, made from programs, libraries and modules of `root`."""
    archive = _Archive()
    for name in DIRECTORIES:
        archive.directory(name)
    for name in sorted({BUSYBOX, PREPARE_ROOT, *_libraries(root)}):
        archive.file(name.lstrip("/"), _inside(root, name).read_bytes(), 0o755)
    names = []
    conf = _inside(root, PREPARE_ROOT_CONF)
    if conf.exists():
        # ostree-prepare-root reads this copy, not the one of the deployment.
        archive.file(PREPARE_ROOT_CONF.lstrip("/"), conf.read_bytes(), 0o644)
    directory = root / "usr/lib/modules" / version
    always = _modules(directory, MODULES + (COMPOSEFS_MODULES if conf.exists() else ()))
    with_xfs = [path for path in _modules(directory, XFS_MODULES) if path not in always]
    for path in (*always, *with_xfs):
        names.append(path.name.removesuffix(".xz"))
        data = path.read_bytes()
        archive.file(f"modules/{names[-1]}", lzma.decompress(data) if path.suffix == ".xz" else data, 0o644)
    for link, target in (("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")):
        archive.link(link, target)
    init = INIT.format(
        busybox=BUSYBOX, prepare_root=PREPARE_ROOT, modules=" ".join(names), optional="|".join(names[len(always) :])
    )
    archive.file("init", init.encode(), 0o755)
    return archive.close()


def _libraries(root: Path) -> Iterator[str]:
    listed = process.run(["chroot", str(root), "ldd", PREPARE_ROOT], timeout=TIMEOUT).stdout.decode()
    for path in re.findall(r"(/\S+) \(0x", listed):
        # The loader's own path is compiled into every program; the others are found in the usual places.
        yield path if path.startswith("/usr/") else "/usr" + path


def _inside(root: Path, path: str) -> Path:
    """The file that `path` leads to in `root`, links followed there and not here."""
    found = root / path.lstrip("/")
    while found.is_symlink():
        target = found.readlink()
        found = root / str(target).lstrip("/") if target.is_absolute() else found.parent / target
    return found


def _modules(directory: Path, wanted: Sequence[str]) -> list[Path]:
    """These modules and what they need, in the order of loading."""
    needs: dict[str, list[str]] = {}
    for line in (directory / "modules.dep").read_text().splitlines():
        name, _, rest = line.partition(":")
        needs[name] = rest.split()
    ordered: dict[str, None] = {}
    for module in wanted:
        (name,) = (known for known in needs if known.startswith(f"kernel/{module}.ko"))
        for each in (*reversed(needs[name]), name):
            ordered[each] = None
    return [directory / name for name in ordered]


class _Archive:
    """cpio in the "newc" form, which is what the kernel unpacks; the same content gives the same bytes."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._made: set[str] = set()

    def directory(self, name: str) -> None:
        if name not in self._made and name != ".":
            self.directory(str(Path(name).parent))
            self._made.add(name)
            self._entry(name, stat.S_IFDIR | 0o755, b"")

    def file(self, name: str, data: bytes, mode: int) -> None:
        self.directory(str(Path(name).parent))
        self._entry(name, stat.S_IFREG | mode, data)

    def link(self, name: str, target: str) -> None:
        self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def close(self) -> bytes:
        self._entry("TRAILER!!!", 0, b"")
        return bytes(self._data)

    def _entry(self, name: str, mode: int, data: bytes) -> None:
        path = name.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, size, device (2), device of a node (2), length of the name, checksum
        fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        for part in (b"070701" + "".join(f"{field:08x}" for field in fields).encode() + path, data):
            self._data += part
            self._data += b"\0" * (-len(self._data) % 4)
