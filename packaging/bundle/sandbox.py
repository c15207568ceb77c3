# SPDX-License-Identifier: Apache-2.0
"""Run the compilers: in a tree of an older Debian, without network and privileges, with one folder to write to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bundle import cache, debian, tools

PACKAGES = (
    *("gcc", "libc6-dev", "make", "perl", "xz-utils", "dpkg-dev"),
    # Debian's sources have no generated files: autoconf makes those of expat and libffi, Tcl those of SQLite.
    *("autoconf", "automake", "libtool", "tcl"),
)
KEPT = 1  # trees

# In namespaces of its own, so that nothing stays mounted, or runs longer than this.
UNSHARE = ("unshare", "--mount", "--propagation=private", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child")
ENTER = """\
set -e
tree=$1 work=$2 user=$3
shift 3
mount --bind "$tree" "$tree"
mount -o remount,bind,ro,nosuid "$tree"
mount --bind "$work" "$tree/srv"
mount -o remount,bind,nosuid,nodev "$tree/srv"
mount -t proc -o nosuid,nodev,noexec proc "$tree/proc"
mount -t tmpfs -o mode=1777,size=1g,nosuid,nodev tmpfs "$tree/tmp"
mount -t tmpfs -o mode=755,size=64k,nosuid tmpfs "$tree/dev"
for device in null zero random urandom; do
    touch "$tree/dev/$device"
    mount --bind "/dev/$device" "$tree/dev/$device"
done
ln -s /proc/self/fd "$tree/dev/fd"
# No exec: a process that changes its user loses the signal of --kill-child, which ends the whole namespace here.
chroot --userspec="$user:$user" --groups= "$tree" \\
    env -i PATH=/usr/bin:/bin LC_ALL=C.UTF-8 TZ=UTC HOME=/srv "$@"
"""
WORK = "/srv"  # the folder that can be written, as the programs see it


def tree(suite: str) -> Path:
    """Return the cached tree of a release of Debian with compilers. It must not be changed."""
    key = cache.digest([suite, *PACKAGES, *debian.TREE_OPTIONS])
    found = cache.directory("buildtree", key, lambda to: debian.make_tree(suite, PACKAGES, to))
    cache.bound("buildtree", KEPT)
    return found


def give(work: Path) -> None:
    """Make `work` and all that is in it writable for the programs."""
    for path in (work, *work.rglob("*")):
        os.chown(path, debian.UNPRIVILEGED, debian.UNPRIVILEGED, follow_symlinks=False)


def run(tree: Path, work: Path, argv: Sequence[str], timeout: float) -> None:
    """Run a program of `tree`, for at most `timeout` seconds. Raises BuildError with its messages."""
    user = str(debian.UNPRIVILEGED)
    tools.run([*UNSHARE, "bash", "-c", ENTER, "enter", tree, work, user, *argv], timeout=timeout)
