# SPDX-License-Identifier: Apache-2.0
"""Turns a root filesystem into one that ostree deploys, as rpm-ostree's compose does for Fedora CoreOS and RHCOS.

/etc is at usr/etc; /var, /boot and the mount points are empty; what is changed at run time is a link into /var or
/sysroot; tmpfiles.d makes at boot all directories and links that the packages brought in /var. Kernel and initramfs are
in usr/lib/modules/VERSION; a root without a kernel gets placeholders, because ostree deploys none without. They differ
from one version of the tree to another, so that each update needs room in /boot.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path

from integration.hosts import overlay, process
from integration.trees.base import kernel

PLACEHOLDER_KERNEL = "6.0.0-placeholder"
PLACEHOLDERS = {"vmlinuz": 64 << 10, "initramfs.img": 256 << 10}  # bytes
AUTOVAR = "usr/lib/tmpfiles.d/00-autovar.conf"
ADDED_VAR = "usr/lib/tmpfiles.d/01-autovar-added.conf"
LINKS = {
    "home": "var/home",
    "root": "var/roothome",
    "opt": "var/opt",
    "srv": "var/srv",
    "mnt": "var/mnt",
    "media": "run/media",
    "ostree": "sysroot/ostree",
    "usr/local": "../var/usrlocal",
}
MOUNT_POINTS = {"boot": 0o755, "run": 0o755, "dev": 0o755, "proc": 0o755, "sys": 0o755, "sysroot": 0o755, "tmp": 0o1777}
TMPFILES = """\
d /var/home 0755 root root -
d /var/home/core 0700 core core -
d /var/roothome 0700 root root -
d /var/opt 0755 root root -
d /var/srv 0755 root root -
d /var/mnt 0755 root root -
d /run/media 0755 root root -
d /var/usrlocal 0755 root root -
"""
# Of the package manager, which an image has no use for at run time, and of the machine that made the image.
NOT_KEPT = ("lib/dpkg", "lib/apt", "cache/apt", "cache/debconf", "cache/ldconfig", "home", "tmp", "lib/systemd/catalog")


def convert(root: Path) -> None:
    """Give `root`, writable and with nothing mounted below it, ostree's layout."""
    _drop_tmpfiles_of_links(root)
    (root / AUTOVAR).write_text(TMPFILES + _tmpfiles_of(root / "var", root / "etc"))
    (root / "etc/.updated").unlink(missing_ok=True)
    for name in ("var", *MOUNT_POINTS, *LINKS):
        _remove(root / name)
    (root / "var").mkdir(mode=0o755)
    for name, mode in MOUNT_POINTS.items():
        (root / name).mkdir()
        (root / name).chmod(mode)
    for name, target in LINKS.items():
        (root / name).symlink_to(target)
    (root / "etc").rename(root / "usr/etc")


@contextlib.contextmanager
def etc_in_place(root: Path) -> Iterator[None]:
    """Have the /etc of a converted root where programs look for it."""
    etc = root / "etc"
    etc.mkdir()
    try:
        process.run(["mount", "--bind", str(root / "usr/etc"), str(etc)], timeout=10)
        try:
            yield
        finally:
            process.run(["umount", str(etc)], timeout=10)
    finally:
        etc.rmdir()


def finish(root: Path, version: str) -> None:
    """Make a converted root, to which things were added since, one version of the operating system."""
    known = {line.split()[1] for line in (root / AUTOVAR).read_text().splitlines()}
    lines = _tmpfiles_of(root / "var", root / "usr/etc").splitlines(keepends=True)
    if added := [line for line in lines if line.split()[1] not in known]:
        (root / ADDED_VAR).write_text("".join(added))
    for path in (root / "var").iterdir():
        _remove(path)
    _write_release(root, version)
    _place_kernel(root, version)


def _drop_tmpfiles_of_links(root: Path) -> None:
    """systemd's own lines want directories where links are."""
    for path in (root / "usr/lib/tmpfiles.d").glob("*.conf"):
        lines = path.read_text().splitlines(keepends=True)
        kept = [line for line in lines if (line.split()[1:2] or [""])[0].strip("/") not in LINKS]
        if kept != lines:
            path.write_text("".join(kept))


def _tmpfiles_of(var: Path, etc: Path) -> str:
    """Lines for the directories and links below /var; regular files there are caches and made again."""
    users, groups = _names(etc / "passwd"), _names(etc / "group")
    lines = []
    for path in sorted(var.rglob("*")):
        name = path.relative_to(var)
        if any(name.is_relative_to(skipped) for skipped in NOT_KEPT):
            continue
        about = path.lstat()
        if path.is_symlink():
            lines.append(f"L /var/{name} - - - - {path.readlink()}\n")
        elif path.is_dir():
            mode = stat.S_IMODE(about.st_mode)
            lines.append(f"d /var/{name} {mode:04o} {users[about.st_uid]} {groups[about.st_gid]} -\n")
    return "".join(lines)


def _names(table: Path) -> dict[int, str]:
    rows = [line.split(":") for line in table.read_text().splitlines()]
    return {int(row[2]): row[0] for row in rows}


def _write_release(root: Path, version: str) -> None:
    path = root / "usr/lib/os-release"
    kept = [line for line in path.read_text().splitlines() if line.split("=")[0] not in ("PRETTY_NAME", "VERSION")]
    path.write_text(
        "\n".join([f'PRETTY_NAME="Test host {version}"', f'VERSION="{version}"', f"OSTREE_VERSION='{version}'", *kept])
        + "\n"
    )


def _place_kernel(root: Path, version: str) -> None:
    if kernel(root) is None:
        modules = root / "usr/lib/modules" / PLACEHOLDER_KERNEL
        modules.mkdir(parents=True)
        for name, size in PLACEHOLDERS.items():
            (modules / name).write_bytes(f"{name} of {version}, never booted\n".encode().ljust(size, b"\0"))


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        overlay.remove_tree(path)
