# SPDX-License-Identifier: Apache-2.0
"""Runs as its own program: `initramfs.py MODE DISK WORK COMMAND...` is boot loader, kernel and initramfs for COMMAND.

It takes the default boot loader entry of the ostree system on DISK (a mounted directory) and makes, in a mount
namespace of its own, what that entry boots; then it becomes COMMAND, in which `{options}` stands for the arguments of
the kernel. All of it vanishes with the last process of COMMAND: nothing has to be cleaned up after a power cut.

What is real: ostree's own `ostree-prepare-root` of the deployment that is booted, which resolves `ostree=`, mounts
the deployment with its writable /etc and read-only /usr, /boot and a read-only /sysroot (`sysroot.readonly`, as
Fedora CoreOS and RHCOS set it), and leaves `/run/ostree-booted` and `/run/ostree`. It is run in a chroot with a
/proc whose `cmdline` is that of the entry. The root is then at WORK/sysroot, the initramfs's /run at WORK/run.

What is not: there is no kernel and no initramfs image (those of the tree are placeholders that no program reads), and
no bootloader, so that counting boot attempts and falling back cannot be tested. An entry that
GRUB would ask a password for does not boot.

MODE is `boot`, or `files` to look at a host that is off: there /var is mounted as well, which systemd does in a boot
(by ostree's generator, from the same arguments).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))  # with -I, python looks at no directory of the caller

from integration.hosts.ostree import bls

CLONE_NEWNS = 0x00020000  # linux/sched.h
PREPARE_ROOT = "/usr/lib/ostree/ostree-prepare-root"
CMDLINE = "initramfs/cmdline"  # below run


def main(mode: str, disk_name: str, work_name: str, *command: str) -> None:
    disk, work = Path(disk_name), Path(work_name)
    entry = bls.entries(disk)[0]
    if bls.asks_password(disk, entry):
        raise SystemExit(f"GRUB waits for a password before it boots {entry.name}")
    options = entry.options
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNS)")
    mount("--make-rprivate", "/")
    # A symbolic link, which ostree-prepare-root resolves.
    deployment = (disk / dict(word.partition("=")[::2] for word in options.split())["ostree"].lstrip("/")).resolve()
    make_root(disk, deployment, work, options)
    # It says what it does; what COMMAND says must not be mixed with that.
    subprocess.run(["chroot", work, PREPARE_ROOT, "/sysroot"], check=True, stdout=sys.stderr)
    for directory in ("proc", "usr"):
        subprocess.run(["umount", "--lazy", work / directory], check=True)
    # A newer ostree-prepare-root leaves a /boot of its own filesystem to systemd, which has no device for it here.
    if (disk / "boot").is_mount() and not (work / "sysroot/boot").is_mount():
        mount("--bind", disk / "boot", work / "sysroot/boot")
    if mode == "files":
        mount("--bind", deployment.parents[1] / "var", work / "sysroot/var")
    argv = [argument for given in command for argument in (options.split() if given == "{options}" else [given])]
    os.execvp(argv[0], argv)


def make_root(disk: Path, deployment: Path, work: Path, options: str) -> None:
    """The root of the initramfs: the programs of the deployment, and the disk at /sysroot."""
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", work)
    for name in ("sysroot", "proc", "usr", "etc", "run"):
        (work / name).mkdir()
    for name in ("bin", "lib", "lib64", "sbin"):
        (work / name).symlink_to(f"usr/{name}")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", work / "run")
    cmdline = work / "run" / CMDLINE
    cmdline.parent.mkdir()
    cmdline.write_text(options + "\n")
    mount("--bind", deployment / "usr", work / "usr")
    mount("--rbind", "/proc", work / "proc")
    mount("--bind", cmdline, work / "proc/cmdline")
    mount("--rbind", disk, work / "sysroot")


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
