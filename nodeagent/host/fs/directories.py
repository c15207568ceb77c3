# SPDX-License-Identifier: Apache-2.0
"""Directories of a config: make, compare and remove them. What is in one is never touched."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from nodeagent.core.config.file_tree import Directory
from nodeagent.errors import Terminal
from nodeagent.host.fs.atomic import put_dir
from nodeagent.host.fs.paths import Parent, Walk
from nodeagent.host.fs.selinux import Labels
from nodeagent.host.fs.survey import not_a_directory, status
from nodeagent.reasons import Reason

_MODE = 0o755
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# In use, a mount point, or removed already.
_KEPT = (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.ENOENT)


def put(parent: Parent, node: Directory, labels: Labels, *, uid: int | None, gid: int | None) -> None:
    """Make the directory, or set what ``node`` names of the one that exists. Raises ``Terminal`` (``NotADirectory``)
    for a file or a link in its place."""
    info = status(parent, going=True)
    if info is None:
        # A new directory has no previous label, so it gets the one of the policy.
        def label(fd: int, mode: int) -> None:
            labels.write(fd, parent.walk.path, mode, wanted=node.label, replaced=None)

        mode = _MODE if node.mode is None else node.mode
        put_dir(parent.fd, parent.name, mode=mode, uid=uid or 0, gid=gid or 0, label=label)
        return
    if not stat.S_ISDIR(info.st_mode):
        raise Terminal(f"{parent.walk.path} {not_a_directory(info)}", reason=Reason.NOT_A_DIRECTORY)
    # A link that took its place in the meantime is not followed.
    fd = os.open(parent.name, _OPEN, dir_fd=parent.fd)
    try:
        if node.label is not None and labels.read(fd) != node.label:
            labels.write(fd, parent.walk.path, info.st_mode, wanted=node.label, replaced=None)
        # The order does not matter: chown(2) keeps the bits of a directory.
        os.fchown(fd, -1 if uid is None else uid, -1 if gid is None else gid)
        if node.mode is not None:
            os.fchmod(fd, node.mode)
        os.fsync(fd)
    finally:
        os.close(fd)


def read(parent: Parent, info: os.stat_result, labels: Labels) -> Directory:
    """Return the directory with all of its attributes."""
    fd = os.open(parent.name, _OPEN, dir_fd=parent.fd)
    try:
        return Directory(stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid, labels.read(fd))
    finally:
        os.close(fd)


def differences(info: os.stat_result, node: Directory) -> Iterator[str]:
    """Yield how the type and the mode differ."""
    if not stat.S_ISDIR(info.st_mode):
        yield not_a_directory(info)
    elif node.mode is not None and stat.S_IMODE(info.st_mode) != node.mode:
        yield f"mode is {stat.S_IMODE(info.st_mode):04o}, not {node.mode:04o}"


def remove(fd: int, name: str) -> bool:
    """Remove a directory, durably. Return False for one that is not empty or in use, which is no error: another program
    put a file into it."""
    try:
        os.rmdir(name, dir_fd=fd)
    except OSError as error:
        if error.errno in _KEPT:
            return False
        raise
    os.fsync(fd)
    return True


def remove_empty(walk: Walk, made: frozenset[str]) -> None:
    """Remove the innermost directories of ``walk`` that are in ``made`` and empty."""
    # The root is level 0 and never removed.
    while len(walk.levels) > 1 and walk.resolved() in made:
        name = walk.pop()
        if not remove(walk.fd, name):
            return
