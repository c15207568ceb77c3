# SPDX-License-Identifier: Apache-2.0
"""The root filesystem that trees are made from: the image of `integration.hosts.container` and ostree's parts.

Four flavours. `CONTAINER` has no kernel (its `vmlinuz` and `initramfs.img` are placeholders of a few bytes) and is
what `integration.hosts.ostree` boots; `MACHINE` has a real kernel and an initramfs with ostree in it, for virtual
machines. `COMPOSEFS` is that with Debian sid and a composefs: only there does libostree prepare a soft reboot.
`BOOTC` is `CONTAINER` with what pulls and stages images on a host that bootc updates (`integration.trees.forky`).
All have ostree's own boot units, and Python with GObject introspection for the stand-in of rpm-ostreed.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from pathlib import Path

from integration.hosts import process
from integration.hosts.container import recipe
from integration.hosts.container.image import Image, base_image, derived_image
from integration.hosts.errors import CommandFailed, Unavailable
from integration.hosts.requirements import Say
from integration.hosts.sources import code
from integration.hosts.vm import initramfs
from integration.trees import forky

APT_TIMEOUT = 600.0

PACKAGES = ("ostree", "ostree-boot", "gir1.2-ostree-1.0", "python3", "python3-gi")
BOOTC_PACKAGES = ("skopeo", "bubblewrap")
# The kernel for virtual machines has a quarter of the drivers.
KERNEL_PACKAGES = ("linux-image-cloud-amd64", "busybox-static", "xfsprogs", "cryptsetup-bin", "lvm2")
CHROOT_ENV = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "INITRD": "No",
}


# libostree reads it in the deployment, and ostree-prepare-root in the initramfs. "maybe" is not enough for libostree.
COMPOSEFS_CONF = """\
[composefs]
enabled = yes

[sysroot]
readonly = true
"""
# The first releases that keep /var, /sysroot and /boot over a soft reboot, and that count them.
LEAST = {"ostree": "2026.1", "systemd": "256"}


class Flavour(enum.Enum):
    CONTAINER = "container"
    MACHINE = "machine"
    COMPOSEFS = "composefs"
    BOOTC = "bootc"


def base(flavour: Flavour, say: Say) -> Image:
    """The root of a flavour, cached. Raises Unavailable where none can be made."""
    source = code(__file__) + flavour.value.encode()
    boots = flavour in (Flavour.MACHINE, Flavour.COMPOSEFS)
    if boots:
        source += code(initramfs.__file__)
    if flavour is Flavour.BOOTC:
        source += code(forky.__file__)

    def change(root: Path) -> None:
        say(f"installing ostree{' and a kernel' if boots else ''} for the {flavour.value} tree")
        if flavour is Flavour.BOOTC:
            _install_bootc(root, say)
        else:
            install(root, PACKAGES + (KERNEL_PACKAGES if boots else ()))
        with chrooted(root):
            # ostree gives all files the time 0, which makes what Python compiled and dated worthless.
            inside(root, *("python3", "-m", "compileall", "-qf", "--invalidation-mode=unchecked-hash", "/usr/lib"))
        if flavour is Flavour.COMPOSEFS:
            say(f"found {_versions(root)}")
            (root / initramfs.PREPARE_ROOT_CONF.lstrip("/")).write_text(COMPOSEFS_CONF)
        if boots:
            _place_kernel(root)

    if flavour is not Flavour.COMPOSEFS:
        return derived_image(base_image(say), f"tree-{flavour.value}", source, change)
    try:
        return derived_image(base_image(say, unstable=True), f"tree-{flavour.value}", source, change)
    except CommandFailed as error:
        # sid is another archive than that of the machine, and changes every day.
        raise Unavailable(f"no tree can be made of Debian sid: {error}") from None


def _install_bootc(root: Path, say: Say) -> None:
    packages = PACKAGES + BOOTC_PACKAGES
    try:
        with forky.offered(root):
            install(root, packages)
    except CommandFailed as error:
        # forky changes every day.
        say(f"the libostree of {forky.SUITE} does not install, so that of {recipe.SUITE} is taken: {error}")
        install(root, packages)


def _versions(root: Path) -> str:
    """Return the versions that matter to soft reboots. Raises Unavailable for one that is too old."""
    names = (*LEAST, "libcomposefs1", KERNEL_PACKAGES[0])
    query = ["chroot", str(root), "dpkg-query", "--show", "--showformat=${Package} ${Version}\\n", *names]
    found = process.run(query, timeout=30).stdout.decode().split("\n")
    for name, version in (line.split() for line in found if line):
        # The machine may have no dpkg.
        compared = ["chroot", str(root), "dpkg", "--compare-versions", version, "ge", LEAST.get(name, "0")]
        if process.run(compared, timeout=30, check=False).returncode:
            raise Unavailable(f"a soft reboot needs {name} {LEAST[name]}, and Debian sid has {version}")
    return ", ".join(line for line in found if line)


def install(root: Path, packages: tuple[str, ...]) -> None:
    """Install packages of Debian into a root, from the mirrors that it was made from."""
    resolv = root / "etc/resolv.conf"
    kept = resolv.read_bytes()
    resolv.write_bytes(Path("/etc/resolv.conf").read_bytes())
    try:
        with chrooted(root):
            inside(root, "apt-get", "update", "-q")
            # The guest's own files in /etc are kept.
            options = ("-qy", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold")
            inside(root, "apt-get", "install", *options, *packages)
            inside(root, "apt-get", "clean")
    finally:
        resolv.write_bytes(kept)


def kernel(root: Path) -> str | None:
    """Version of the one kernel in a root, None without one."""
    found = [path.name for path in (root / "usr/lib/modules").glob("*") if (path / "kernel").is_dir()]
    return found[0] if found else None


@contextlib.contextmanager
def chrooted(root: Path) -> Iterator[None]:
    """Have /proc, /sys and /dev in a root for as long as programs run in it."""
    mounted: list[Path] = []
    try:
        for name, argv in (
            ("proc", ["-t", "proc", "proc"]),
            ("sys", ["-t", "sysfs", "-o", "ro", "sysfs"]),
            ("dev", ["--bind", "/dev"]),
        ):
            process.run(["mount", *argv, str(root / name)], timeout=10)
            mounted.append(root / name)
        yield
    finally:
        for path in reversed(mounted):
            process.run(["umount", "--lazy", str(path)], timeout=10)


def inside(root: Path, *argv: str, timeout: float = APT_TIMEOUT) -> None:
    process.run(["chroot", str(root), *argv], timeout=timeout, env=CHROOT_ENV)


def _place_kernel(root: Path) -> None:
    version = kernel(root)
    assert version is not None, "a kernel was just installed"
    directory = root / "usr/lib/modules" / version
    (directory / "initramfs.img").write_bytes(initramfs.build(root, version))
    (root / f"boot/vmlinuz-{version}").rename(directory / "vmlinuz")
