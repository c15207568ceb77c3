"""Looking at paths before an update writes them: what is in the way, what is replaced, and who else may write there.

Blocking; ``files.HostFiles`` calls it in its thread. Nothing here reads content or changes anything.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable

from nodeagent.core.update.survey import Survey
from nodeagent.errors import AgentError, Terminal
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.fs.paths import Parent, Walk, open_parent, split

__all__ = ["contested", "survey"]


def contested(root: str, path: str) -> str:
    """Describe the first directory on the way to ``path`` in which others than root can write; "" if there is none."""
    *parts, _ = split(path)
    walk = Walk(path)
    try:
        walk.push(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), "")
        walk.enter(parts)
    except (OSError, AgentError):
        pass  # what keeps us out may be the work of the owner of a directory above: those that were entered count
    try:
        for index, level in enumerate(walk.levels):
            if not level.trusted:
                info = os.fstat(level.fd)
                place = "/" + "/".join(each.name for each in walk.levels[1 : index + 1])
                if info.st_uid not in (0, os.geteuid()):
                    return f"{place} belongs to uid {info.st_uid}"
                return f"{place} is writable for others than root"
    finally:
        walk.close()
    return ""


def survey(root: str, writes: Iterable[str], removes: Collection[str], limit: int) -> Survey:
    """``limit``: bytes above which a single file is not kept for a revert.

    Paths that others than root can reach are left out: what is there now says nothing about what will be.
    """
    leaving = frozenset(removes)
    above = frozenset(_ancestors(leaving))
    obstacles: dict[str, str] = {}
    kept = 0
    for path in dict.fromkeys([*writes, *removes]):
        try:
            with translated("look at", path), open_parent(root, path) as parent:
                size = _size(parent, going=path in above)
            if size > limit:
                raise Terminal(
                    f"{path} has {size} bytes; more than {limit} are not kept for a revert", reason="FileTooLarge"
                )
            kept += size
        except AgentError as error:
            # Below a file there is nothing to remove, and a file that the same update removes makes room.
            gone = path in leaving or any(place in leaving for place in _ancestors([path]))
            if not (error.reason == "NotADirectory" and gone) and not contested(root, path):
                obstacles[path] = error.message
    return Survey(obstacles, kept)


def _size(parent: Parent, *, going: bool) -> int:
    """Bytes of the file there, 0 for a link or nothing. Raises ``OSError`` for what cannot be replaced; ``going``: the
    update removes what is in the directory of that name, and the directory with it."""
    if parent.missing:
        return 0
    try:
        info = os.stat(parent.name, dir_fd=parent.fd, follow_symlinks=False)
    except FileNotFoundError:
        return 0
    if stat.S_ISREG(info.st_mode):
        return info.st_size
    if stat.S_ISLNK(info.st_mode) or (going and stat.S_ISDIR(info.st_mode)):
        return 0
    kind = "a directory" if stat.S_ISDIR(info.st_mode) else "a device, socket or pipe"
    raise Terminal(f"{parent.walk.path} is {kind}, where a file should be", reason="NotAFile")


def _ancestors(paths: Iterable[str]) -> Iterable[str]:
    for path in paths:
        while path := path.rpartition("/")[0]:
            yield path
