# SPDX-License-Identifier: Apache-2.0
"""Runs the tree's own ostree, so that its version is the guest's everywhere, whatever this machine has or has not."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from integration.hosts import overlay, process
from integration.hosts.container import container_host
from integration.hosts.container.image import Image
from integration.hosts.locks import claim
from integration.trees.base import CHROOT_ENV

TIMEOUT = 300.0


# In a mount namespace of its own, so that no other process of this machine has these mounts, or keeps them busy; and
# not in our PID namespace: libostree looks at PID 1 to see whether it has a mount namespace of its own, and where
# this machine is a container it may not look there.
UNSHARE = ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child")
ENTER = """\
set -e
root=$1 directories=$2
shift 2
mount -t proc proc "$root/proc"
while [ "$directories" -gt 0 ]; do
    mount --bind "$1" "$root$1"
    shift
    directories=$((directories - 1))
done
exec chroot "$root" "$@"
"""


class Toolbox:
    """A root with ostree in it and some directories of this machine at the same paths as here."""

    def __init__(self, root: Path, directories: Sequence[Path] = ()) -> None:
        self._enter = (*UNSHARE, "sh", "-c", ENTER, "enter", str(root), str(len(directories)), *map(str, directories))

    def run(self, *argv: str, check: bool = True, timeout: float = TIMEOUT) -> subprocess.CompletedProcess[bytes]:
        """Run a program of the tree. Raises CommandFailed."""
        return process.run([*self._enter, *argv], timeout=timeout, check=check, env=CHROOT_ENV, shown=argv)

    def said(self, *argv: str) -> str:
        return self.run(*argv).stdout.decode().strip()


@contextlib.contextmanager
def toolbox(image: Image, *directories: Path) -> Iterator[Toolbox]:
    """Have a toolbox that sees `directories`, without what is mounted below them.

    Hard links work within each, not between two of them.
    """
    with scratch(image) as root:
        for directory in directories:
            (root / directory.relative_to("/")).mkdir(parents=True, exist_ok=True)
        yield Toolbox(root, directories)


@contextlib.contextmanager
def scratch(image: Image) -> Iterator[Path]:
    """A writable view of an image that is thrown away."""
    with throwaway("scratch") as directory:
        overlay.mount(image.paths, directory / "upper", directory / "root")
        yield directory / "root"


@contextlib.contextmanager
def throwaway(kind: str) -> Iterator[Path]:
    """A directory on the disk of the cache, removed with what is mounted in it; after a kill, by the next run."""
    directory = container_host.hosts_directory() / f"na-{kind}-{secrets.token_hex(4)}"
    with claim(directory):
        try:
            yield directory
        finally:
            overlay.unmount_below(directory)
            overlay.remove_tree(directory)
