"""Opening the directory of a path without being led astray.

The agent is root and writes below directories of users (``~core/.ssh``), who may swap any component for a link at any
moment. So a path is walked one component at a time, each opened relative to the one before with ``O_NOFOLLOW``, and
everything later happens relative to the directory held open.

Links cannot simply be refused: immutable hosts have ``/home -> var/home``, ``/usr/local -> ../var/usrlocal`` and
``/bin -> usr/bin``. A link is followed if root owns it and every directory on the way to it belongs to root and is
writable for nobody else: then only root can have put it there. openat2() knows no such rule (all links or none), which
is why the walk is ours. Links are resolved as in a chroot: nothing leads out of the root.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from nodeagent.errors import InvalidInput, Terminal

__all__ = ["Parent", "Walk", "open_parent", "split"]

_MAX_LINKS = 40  # the kernel's own bound
_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def split(path: str) -> list[str]:
    """The components of an absolute, plain path. Raises ``InvalidInput`` with reason ``BadPath``."""
    parts = path.split("/")
    plain = not parts[0] and len(parts) > 1 and not any(part in ("", ".", "..") for part in parts[1:])
    if not plain or "\0" in path or any("\ud800" <= char <= "\udfff" for char in path):
        raise InvalidInput(f"not an absolute path without '.', '..' and empty parts: {path!r}", reason="BadPath")
    return parts[1:]


@dataclass(frozen=True, slots=True)
class _Level:
    fd: int
    name: str
    trusted: bool  # only root can have put what is in here


@dataclass(slots=True)
class Walk:
    """A stack of open directories, the root at the bottom. ``..`` in a link pops it, so no rename moves it elsewhere.

    ``path`` is what was asked for, for messages.
    """

    path: str
    levels: list[_Level] = field(default_factory=list)
    _links: int = 0

    @property
    def fd(self) -> int:
        return self.levels[-1].fd

    def resolved(self, *more: str) -> str:
        """Where we really are, below the root: ``/var/home`` for ``/home``."""
        return "/" + "/".join([*(level.name for level in self.levels[1:]), *more])

    def push(self, fd: int, name: str) -> None:
        info = os.fstat(fd)
        alone = _is_root(info.st_uid) and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        self.levels.append(_Level(fd, name, alone and (not self.levels or self.levels[-1].trusted)))

    def pop(self) -> str:
        """Leaves a directory; returns its name in the one above."""
        level = self.levels.pop()
        os.close(level.fd)
        return level.name

    def close(self) -> None:
        while self.levels:
            self.pop()

    def enter(
        self, parts: Sequence[str], make: Callable[[str], None] | None = None, *, files_will_go: bool = False
    ) -> list[str]:
        """Goes down ``parts``. A missing directory is made with ``make(name)``; without that, the walk ends there.

        Returns the components that are missing. Raises ``NotADirectoryError``, unless ``files_will_go``: then a file
        in the way counts as missing. Raises ``Terminal`` (``LinkRefused``).
        """
        todo = deque(parts)
        while todo:
            name = todo.popleft()
            if name in ("", "."):
                continue
            if name == "..":
                if len(self.levels) > 1:
                    self.pop()
                continue
            try:
                todo.extendleft(reversed(self._step(name)))
            except FileNotFoundError:
                if make is None:
                    return [name, *todo]
                make(name)
                todo.appendleft(name)
            except NotADirectoryError:
                if not files_will_go:
                    raise
                return [name, *todo]
        return []

    def _step(self, name: str) -> list[str]:
        """Enters a directory. If ``name`` is a link, returns the components to walk instead."""
        info = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            return self._follow(name, info)
        if not stat.S_ISDIR(info.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.resolved(name))
        try:
            fd = os.open(name, _OPEN_DIR, dir_fd=self.fd)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):  # it was a directory a moment ago
                raise self._refusal(name, "it was swapped while we looked at it") from error
            raise
        self.push(fd, name)
        return []

    def _follow(self, name: str, info: os.stat_result) -> list[str]:
        if not _is_root(info.st_uid):
            raise self._refusal(name, f"it belongs to uid {info.st_uid}")
        if not self.levels[-1].trusted:
            raise self._refusal(name, "others than root can write there")
        self._links += 1
        if self._links > _MAX_LINKS:
            raise self._refusal(name, "too many links")
        target = os.readlink(name, dir_fd=self.fd)
        if target.startswith("/"):
            while len(self.levels) > 1:
                self.pop()
        return target.split("/")

    def _refusal(self, name: str, why: str) -> Terminal:
        return Terminal(
            f"{self.resolved(name)} is a symbolic link on the way to {self.path}, and not followed: {why}",
            reason="LinkRefused",
            hint="make it a directory, or let root own the link and every directory above it",
        )


def _is_root(uid: int) -> bool:
    # Whoever we run as is as good as root: an agent without root (a developer's) can harm only itself.
    return uid in (0, os.geteuid())


@dataclass(frozen=True, slots=True)
class Parent:
    """The directory of a path, held open, if nothing is ``missing``; else the deepest one that is there."""

    walk: Walk
    name: str
    missing: Sequence[str]

    @property
    def fd(self) -> int:
        return self.walk.fd


@contextmanager
def open_parent(
    root: str, path: str, make: Callable[[Walk, str], None] | None = None, *, files_will_go: bool = False
) -> Iterator[Parent]:
    """``make`` creates a directory of that name in ``walk.fd``, where one is missing; for ``files_will_go`` see
    ``Walk.enter``."""
    *parts, name = split(path)
    walk = Walk(path)
    try:
        walk.push(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), "")
        made = None if make is None else lambda missing: make(walk, missing)
        yield Parent(walk, name, walk.enter(parts, made, files_will_go=files_will_go))
    finally:
        walk.close()
