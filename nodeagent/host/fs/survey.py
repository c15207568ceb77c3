# SPDX-License-Identifier: Apache-2.0
"""Inspect paths before an update writes them: obstacles, sizes of replaced files, and directories of other users.

Blocking; ``files.HostFiles`` calls it in its thread. It reads no content and changes nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable

from nodeagent.core.config.problems import similar
from nodeagent.errors import AgentError, Terminal
from nodeagent.host.fs.mounts import Mounts, attribute
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.fs.paths import Parent, Walk, open_parent, split
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import Survey


def contested(root: str, path: str) -> str:
    """Describe the first directory above ``path`` that users other than root can write; "" if there is none."""
    *parts, _ = split(path)
    walk = Walk(path)
    try:
        walk.push(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), "")
        walk.enter(parts)
    except (OSError, AgentError):
        # The owner of a directory above may have caused this error; the entered directories count.
        pass
    try:
        for index, level in enumerate(walk.levels):
            if not level.trusted:
                info = os.fstat(level.fd)
                place = "/" + "/".join(ancestor.name for ancestor in walk.levels[1 : index + 1])
                if info.st_uid not in (0, os.geteuid()):
                    return f"{place} belongs to uid {info.st_uid}"
                return f"{place} is writable for users other than root"
    finally:
        walk.close()
    return ""


def survey(
    root: str, writes: Iterable[str], removes: Collection[str], limit: int, directories: Collection[str] = ()
) -> Survey:
    """Find the paths that cannot be written, and add up the bytes that a revert must keep.

    ``limit`` is how many bytes of a single file are kept for a revert. ``directories`` are those of the paths that are
    directories. Paths below directories that other users can
    write are skipped, because they may change before the write.
    """
    leaving = frozenset(removes)
    above = frozenset(_ancestors(leaving))
    mounts = Mounts(root)
    obstacles: dict[str, str] = {}
    new_tops: dict[str, str] = {}
    kept_bytes = 0
    for path in dict.fromkeys([*writes, *removes]):
        try:
            with translated("inspect", path), open_parent(root, path) as parent:
                info = status(parent, going=path in above or path in directories)
                # One that leaves is removed like a file, or stays.
                if path in directories and path not in leaving and info is not None and not stat.S_ISDIR(info.st_mode):
                    obstacles[path] = not_a_directory(info)
                    continue
                if (info is not None or path not in leaving) and (obstacle := _blocked(mounts, parent, info)):
                    obstacles[path] = obstacle
                    continue
                if len(parent.walk.levels) == 1 and parent.missing and path not in leaving:
                    top = f"/{parent.missing[0]}"
                    new_tops[top] = similar(top, [f"/{name}" for name in os.listdir(parent.fd)])  # noqa: PTH208 - open
            size = info.st_size if info is not None and stat.S_ISREG(info.st_mode) else 0
            # Without a copy there is no revert, so the update is refused before its first write.
            if size > limit:
                raise Terminal(
                    f"{path} has {size} bytes; more than {limit} are not kept for a revert",
                    reason=Reason.FILE_TOO_LARGE,
                )
            kept_bytes += size
        except AgentError as error:
            # A path below a file does not exist, and a file that the same update removes is no obstacle.
            gone = path in leaving or any(place in leaving for place in _ancestors([path]))
            if not (error.reason == Reason.NOT_A_DIRECTORY and gone) and not contested(root, path):
                obstacles[path] = error.message
    return Survey(obstacles, kept_bytes, new_tops)


def _blocked(mounts: Mounts, parent: Parent, info: os.stat_result | None) -> str:
    """Return why the path can neither be written nor removed, or would not stay; "" if it would."""
    levels = parent.walk.levels
    # What other users can change counts for nothing, such as a file system that one of them mounted.
    last = next((index for index, level in enumerate(levels) if not level.trusted), len(levels) - 1)
    place = "/" + "/".join(level.name for level in levels[1 : last + 1])
    obstacle = mounts.obstacle(levels[last].fd, place)
    if obstacle and last == len(levels) - 1 and parent.missing:
        return f"{place.rstrip('/')}/{parent.missing[0]} cannot be created: {obstacle}"
    if obstacle or last < len(levels) - 1 or info is None or not stat.S_ISREG(info.st_mode):
        return obstacle
    if mounts.is_point(parent.walk.resolved(parent.name)):
        return "is a mount point, where a file should be"
    fd = os.open(parent.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent.fd)
    try:
        fixed = attribute(fd)
    finally:
        os.close(fd)
    return f"it is {fixed} (lsattr {parent.walk.path})" if fixed else ""


def status(parent: Parent, *, going: bool = False) -> os.stat_result | None:
    """Return the status of the path, None if it is missing. Raises ``Terminal`` if it is neither file nor link.

    ``going`` allows a directory, which the update removes with its entries.
    """
    if parent.missing:
        return None
    try:
        info = os.stat(parent.name, dir_fd=parent.fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    is_directory = stat.S_ISDIR(info.st_mode)
    # Devices, sockets and pipes are never replaced: another program made them on purpose.
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode) or (going and is_directory)):
        kind = "a directory" if is_directory else "a device, socket or pipe"
        raise Terminal(f"{parent.walk.path} is {kind}, where a file should be", reason=Reason.NOT_A_FILE)
    return info


def not_a_directory(info: os.stat_result) -> str:
    kind = "a symbolic link" if stat.S_ISLNK(info.st_mode) else "a file"
    return f"is {kind}, where a directory should be"


def _ancestors(paths: Iterable[str]) -> Iterable[str]:
    for path in paths:
        while path := path.rpartition("/")[0]:
            yield path
