# SPDX-License-Identifier: Apache-2.0
"""What the next boot starts, from the files of libostree alone: for a host whose rpm-ostreed is absent or does not
answer. A host of bootc has the same deployments, and ``bootc rollback`` changes the same boot order.

libostree numbers its boot menu entries by their key ``version``; the deployment with the highest one boots first
(``compare_boot_loader_configs`` in ostree-sysroot.c). The booted deployment is the directory whose device and inode
those of / are, or, with composefs, those that libostree wrote to /run/ostree-booted. The kernel argument ``ostree=``
does not name it for long: a change of the order removes the link that it names.

bootc's own backend has neither: it keeps its images without ostree.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodeagent.host.rpmostree.deployments import BootEntries
from nodeagent.host.rpmostree.staging import device_and_inode, read_vardict

BOOTED: Final = "run/ostree-booted"
# The key that has device and inode of the directory of a deployment.
DIRECTORY: Final = "backing-root-device-inode"
# Bytes of a file in /run.
_MAX: Final = 1 << 16


def other_boots_first(root: Path) -> str:
    """Return the id of the deployment that the next boot starts; "" if that is booted, or one of both is unknown.

    Blocks for a few small files on the disk; call it in a thread.
    """
    entries = BootEntries(root).read()
    first = max(entries, key=lambda deployment: entries[deployment].order, default="")
    booted = booted_deployment(root)
    return first if booted and first != booted else ""


def booted_deployment(root: Path) -> str:
    """Return the id of the booted deployment, "" if none is booted. Blocks."""
    ours = set(_roots(root))
    for directory in root.glob("ostree/deploy/*/deploy/*.*"):
        with suppress(OSError):
            info = directory.stat()
            # Beside each directory is a file with its origin.
            if directory.is_dir() and (info.st_dev, info.st_ino) in ours:
                return f"{directory.parents[1].name}-{directory.name}"
    return ""


def _roots(root: Path) -> Iterator[tuple[int, int]]:
    with suppress(OSError):
        info = root.stat()
        yield info.st_dev, info.st_ino
    with suppress(OSError, ValueError), (root / BOOTED).open("rb") as file:
        directory = device_and_inode(read_vardict(file.read(_MAX)).get(DIRECTORY))
        if directory is not None:
            yield directory
