# SPDX-License-Identifier: Apache-2.0
"""Open the directory of a path without following links of other users.

The agent runs as root and writes below directories of users (``~core/.ssh``), who may replace any component by a link
at any moment. Therefore a path is walked one component at a time, each opened relative to its parent with
``O_NOFOLLOW``, and all later operations are relative to the open directory.

Links cannot simply be refused: immutable hosts have ``/home -> var/home``, ``/usr/local -> ../var/usrlocal`` and ``/bin
-> usr/bin``. A link is followed if root owns it and only root can write every directory on the way to it, because then
only root can have created it. openat2() has no such rule (all links or none). Links are resolved as in a chroot: no
link leads out of the root.
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
from nodeagent.reasons import Reason

# The kernel's own bound.
_MAX_LINKS = 40
_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def split(path: str) -> list[str]:
    """Return the components of an absolute, plain path. Raises ``InvalidInput`` (``BadPath``)."""
    parts = path.split("/")
    plain = not parts[0] and len(parts) > 1 and not any(part in ("", ".", "..") for part in parts[1:])
    # Lone surrogates would name bytes that are not UTF-8, which a MachineConfig cannot express.
    if not plain or "\0" in path or any("\ud800" <= char <= "\udfff" for char in path):
        raise InvalidInput(
            f"not an absolute path without '.', '..' and empty components: {path!r}", reason=Reason.BAD_PATH
        )
    return parts[1:]


@dataclass(frozen=True, slots=True)
class _Level:
    fd: int
    name: str
    # Only root can have created its entries.
    trusted: bool


@dataclass(slots=True)
class Walk:
    """A stack of open directories, the root at the bottom. ``..`` in a link pops it, so a rename cannot redirect it.

    ``path`` is the requested path, for messages.
    """

    path: str
    levels: list[_Level] = field(default_factory=list)
    _links: int = 0

    @property
    def fd(self) -> int:
        return self.levels[-1].fd

    def resolved(self, *more: str) -> str:
        """Return the resolved path below the root: ``/var/home`` for ``/home``."""
        return "/" + "/".join([*(level.name for level in self.levels[1:]), *more])

    def push(self, fd: int, name: str) -> None:
        """Enter an open directory."""
        info = os.fstat(fd)
        # A directory is trusted if only root can write it and every directory above it.
        alone = _is_root(info.st_uid) and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        self.levels.append(_Level(fd, name, alone and (not self.levels or self.levels[-1].trusted)))

    def pop(self) -> str:
        """Leave the directory and return its name."""
        level = self.levels.pop()
        os.close(level.fd)
        return level.name

    def close(self) -> None:
        while self.levels:
            self.pop()

    def enter(
        self, parts: Sequence[str], make: Callable[[str], None] | None = None, *, files_will_go: bool = False
    ) -> list[str]:
        """Enter ``parts``. ``make(name)`` creates a missing directory; without it, the walk ends there.

        Returns the missing components. A file in the place of a directory raises ``NotADirectoryError``, or counts as
        missing with ``files_will_go``. Raises ``Terminal`` (``LinkRefused``).
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
        """Enter a directory. If ``name`` is a link, return the components to walk instead."""
        info = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            return self._follow(name, info)
        if not stat.S_ISDIR(info.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.resolved(name))
        try:
            fd = os.open(name, _OPEN_DIR, dir_fd=self.fd)
        except OSError as error:
            # It was a directory before.
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise self._refusal(name, "it was replaced during the check") from error
            raise
        self.push(fd, name)
        return []

    def _follow(self, name: str, info: os.stat_result) -> list[str]:
        # A link of another user could lead root to any file.
        if not _is_root(info.st_uid):
            raise self._refusal(name, f"it belongs to uid {info.st_uid}")
        # Another user could exchange the link between the check and its use.
        if not self.levels[-1].trusted:
            raise self._refusal(name, "users other than root can write in its directory")
        self._links += 1
        if self._links > _MAX_LINKS:
            raise self._refusal(name, "too many links")
        target = os.readlink(name, dir_fd=self.fd)
        if target.startswith("/"):
            while len(self.levels) > 1:
                self.pop()
        return target.split("/")

    def _refusal(self, name: str, cause: str) -> Terminal:
        return Terminal(
            f"{self.resolved(name)} is a symbolic link on the way to {self.path} and is not followed: {cause}",
            reason=Reason.LINK_REFUSED,
            hint="replace it by a directory, or make root the owner of the link and of every directory above it",
        )


def _is_root(uid: int) -> bool:
    # The user of the process counts as root: an agent without root, as in tests, can only harm its own user.
    return uid in (0, os.geteuid())


@dataclass(frozen=True, slots=True)
class Parent:
    """The open directory of a path, or the deepest existing one if components are ``missing``."""

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
    """Open the directory of ``path``.

    ``make`` creates a missing directory of that name in ``walk.fd``. For ``files_will_go`` see ``Walk.enter``.
    """
    *parts, name = split(path)
    walk = Walk(path)
    try:
        # The root is opened by its path once. Every further step is relative to an open directory.
        walk.push(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), "")
        made = None if make is None else lambda missing: make(walk, missing)
        yield Parent(walk, name, walk.enter(parts, made, files_will_go=files_will_go))
    finally:
        walk.close()
