# SPDX-License-Identifier: Apache-2.0
"""Bounded reads: of a tree that is not the running one, such as that of a staged deployment, and of chosen paths.

An admin chooses a path in the settings, or a pattern does.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodeagent.host.fs.paths import open_parent


def read_inside(tree: Path, path: str, limit: int) -> bytes:
    """Return the content of ``path``, an absolute path in ``tree``; no link leads out of it.

    Raises ``OSError``, ``ValueError`` for a file larger than ``limit`` bytes, and ``Terminal`` (``LinkRefused``).
    """
    # Files of sysfs report another size than they have, so the size is not used.
    with _opened(tree, path) as fd, open(fd, "rb", closefd=False) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{path} has more than {limit} bytes")
    return data


@contextmanager
def mapped_inside(tree: Path, path: str, limit: int) -> Iterator[mmap.mmap]:
    """Map a file that is not empty. Raises as ``read_inside``."""
    with _opened(tree, path) as fd:
        size = os.fstat(fd).st_size
        if not 0 < size <= limit:
            raise ValueError(f"{path} has {size} bytes")
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as image:
            yield image


def list_inside(tree: Path, path: str, limit: int) -> list[str]:
    """Return the names in a directory in their order, none if it does not exist. Raises as ``read_inside``."""
    with open_parent(str(tree), f"{path}/x") as parent:
        names = [] if parent.missing else sorted(os.listdir(parent.fd))  # noqa: PTH208 - a path by its descriptor
    if len(names) > limit:
        raise ValueError(f"{path} has more than {limit} entries")
    return names


@contextmanager
def _opened(tree: Path, path: str) -> Iterator[int]:
    with open_parent(str(tree), path) as parent:
        if parent.missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        # A pipe must not block, and a link is none of the OS.
        fd = os.open(parent.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent.fd)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        yield fd
    finally:
        os.close(fd)


def read_regular(path: str | Path, limit: int) -> bytes:
    """Return the content of a regular file of at most ``limit`` bytes; links are followed. Blocks.

    Raises ``OSError``, of which ``IsADirectoryError`` is one: also for pipes, devices and larger files.
    """
    # O_NONBLOCK: opening a pipe without a writer must not block this thread without end.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        info = os.fstat(fd)
        if stat.S_ISDIR(info.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        with os.fdopen(fd, "rb", closefd=False) as file:
            content = file.read(limit + 1)
    finally:
        os.close(fd)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit} bytes", str(path))
    return content
