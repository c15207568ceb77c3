# SPDX-License-Identifier: Apache-2.0
"""Managed paths on the disk of the host: capture, install, remove, compare.

Each change is atomic and durable when the call returns. A failure leaves the old state, without a temporary file or a
new directory. Attributes that a node does not name are not kept: no ACL, and of the extended attributes only the
SELinux label. ``paths`` has the rules for links, ``atomic`` those for temporary files.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from nodeagent.core.config.file_tree import Directory, FileTreeEntry, RegularFile, SymbolicLink
from nodeagent.errors import AgentError, Problem, Retryable, Terminal
from nodeagent.host.fs import directories
from nodeagent.host.fs.atomic import is_temp, put_dir, put_file, put_link, remove_temp
from nodeagent.host.fs.os_errors import fault, translated
from nodeagent.host.fs.owners import Owners
from nodeagent.host.fs.paths import Parent, Walk, open_parent, split
from nodeagent.host.fs.selinux import Labels
from nodeagent.host.fs.survey import contested, status, survey
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import Survey

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Bytes of a replaced file, which is kept for the revert in memory and in the store. A larger file is refused.
CAPTURE_LIMIT = 64 << 20

_READ_TRIES = 3
_NO_PLACE = (Reason.LINK_REFUSED, Reason.NOT_A_DIRECTORY, Reason.NOT_A_FILE)


class DiskFiles:
    """The blocking part. It keeps no state: each call reads the disk, and calls may run in several threads."""

    def __init__(
        self, root: str = "/", *, labels: Labels | None = None, owners: Owners | None = None, limit: int = CAPTURE_LIMIT
    ) -> None:
        self._root = root
        self._labels = labels or Labels()
        self._owners = owners or Owners(root)
        self._limit = limit

    def capture(self, path: str) -> FileTreeEntry | None:
        """Return the current node of a path, None if there is none."""
        with translated("read", path):
            try:
                with open_parent(self._root, path) as parent:
                    info = status(parent, going=True)
                    return None if info is None else self._read(parent, info)
            except NotADirectoryError:
                # A path below a file does not exist.
                return None

    def install(self, path: str, node: FileTreeEntry) -> list[str]:
        """Write a node. Returns the new directories as resolved paths (``/var/home/core/.ssh``), outermost first."""
        uid, gid = self._ids(node)
        with translated("write", path), self._making(path, node) as (parent, made):
            if isinstance(node, Directory):
                directories.put(parent, node, self._labels, uid=uid, gid=gid)
                return made
            info = status(parent)
            replaced = None if info is None else self._label_of(parent, info, node)

            def label(fd: int, mode: int) -> None:
                self._labels.write(fd, path, mode, wanted=node.label, replaced=replaced)

            match node:
                case RegularFile(content, mode):
                    put_file(parent.fd, parent.name, content, mode=mode, uid=uid or 0, gid=gid or 0, label=label)
                case SymbolicLink(target):
                    put_link(parent.fd, parent.name, target, uid=uid or 0, gid=gid or 0, label=label)
            return made

    def remove(self, path: str, made_dirs: Sequence[str], *, directory: bool = False) -> None:
        """Remove a path, and the directories of ``made_dirs`` that are empty then."""
        # A parent that is a file, or does not exist, means that the path does not exist either.
        with translated("remove", path), suppress(NotADirectoryError), open_parent(self._root, path) as parent:
            info = status(parent, going=directory)
            if info is not None and stat.S_ISDIR(info.st_mode):
                directories.remove(parent.fd, parent.name)
            elif info is not None:
                os.unlink(parent.name, dir_fd=parent.fd)
                # The removal is durable before the next step is recorded as done.
                os.fsync(parent.fd)
            directories.remove_empty(parent.walk, frozenset(made_dirs))

    def differs(self, path: str, node: FileTreeEntry | None) -> str:
        """Describe how a path differs from a node, "" if it does not.

        Compares mode, owner, type, content or target, and the label if the node names one.
        """
        try:
            with translated("read", path), open_parent(self._root, path) as parent:
                info = status(parent, going=isinstance(node, Directory))
                if info is None or node is None:
                    return "" if info is None and node is None else "is missing" if info is None else "should not exist"
                return "; ".join(self._differences(parent, info, node))
        except AgentError as error:
            # An obstacle above the path is a difference like any other, not a fault of the check.
            if error.reason in _NO_PLACE:
                return "" if node is None and error.reason == Reason.NOT_A_DIRECTORY else error.message
            raise

    def missing_dirs(self, paths: Iterable[str]) -> list[str]:
        """Return the directories that ``install`` would make, so that they can be recorded first.

        A file in the place of a directory counts as one that the same update removes first.
        """
        missing: set[str] = set()
        for path in paths:
            try:
                with translated("inspect", path), open_parent(self._root, path, files_will_go=True) as parent:
                    # The longest prefix is not enough: each missing level is a directory to remove on a revert.
                    steps = range(1, len(parent.missing) + 1)
                    missing.update(parent.walk.resolved(*parent.missing[:count]) for count in steps)
            except AgentError:
                if not self.contested(path):
                    raise
        return sorted(missing)

    # ``missing_dirs`` follows the links of root, so the same path has two names.
    def resolved(self, paths: Iterable[str]) -> list[str]:
        """Return where the paths are, or would be, without those that cannot be followed."""
        places: list[str] = []
        for path in paths:
            with suppress(AgentError, OSError), open_parent(self._root, path, files_will_go=True) as parent:
                places.append(parent.walk.resolved(*parent.missing, parent.name))
        return places

    def survey(self, writes: Iterable[str], removes: Collection[str], directories: Collection[str] = ()) -> Survey:
        """Find obstacles before the first write; see ``survey``."""
        return survey(self._root, writes, removes, self._limit, frozenset(directories))

    def owner_problem(self, node: FileTreeEntry) -> str:
        """Name the user or group of a node that this host does not have, "" if it has both."""
        try:
            self._ids(node)
        except Terminal as error:
            return error.message
        return ""

    def contested(self, path: str) -> str:
        """Describe a directory above ``path`` that other users can write, "" if there is none."""
        return contested(self._root, path)

    def sweep(self, paths: Iterable[str]) -> Sequence[Problem]:
        """Remove temporary files that a killed agent left beside ``paths`` and above them.

        Only for the start, because it would also remove those of a write under way. A fault in one of the directories
        is one of the returned problems, not an error, because their owner controls their content.
        """
        # Each directory is read once, however many of the paths are in it.
        folders: set[tuple[str, ...]] = set()
        left: list[Problem] = []
        for path in paths:
            try:
                parts = split(path)[:-1]
            except AgentError as error:
                left.append(Problem(path, error.message))
                continue
            folders.update(tuple(parts[:depth]) for depth in range(len(parts) + 1))
        for folder in sorted(folders):
            path = "/" + "/".join((*folder, "*"))
            # The folder is opened like the parent of a path, so that no symbolic link of another user is followed.
            try:
                with open_parent(self._root, path) as parent:
                    if not parent.missing:
                        _sweep(parent, left)
            except NotADirectoryError:
                continue
            except OSError as error:
                left.append(Problem(path, fault(error, "sweep", path).message))
            except AgentError as error:
                # No write ever went through such a link.
                if error.reason != Reason.LINK_REFUSED:
                    left.append(Problem(path, error.message))
        return left

    def _ids(self, node: FileTreeEntry) -> tuple[int | None, int | None]:
        """Return the numbers of user and group, None for one that a directory does not name."""
        user = None if node.user is None else self._owners.uid(node.user)
        return user, None if node.group is None else self._owners.gid(node.group)

    @contextmanager
    def _making(self, path: str, node: FileTreeEntry) -> Iterator[tuple[Parent, list[str]]]:
        """Yield the parent and the directories that were made for it. On failure these are removed."""
        made: list[str] = []
        mode, owner = (node.dir_mode, node.dir_owner) if isinstance(node, RegularFile) else (0o755, 0)

        def make(walk: Walk, name: str) -> None:
            place = walk.resolved(name)

            # A new directory has no previous label, so it gets the one of the policy.
            def label(fd: int, kind: int) -> None:
                self._labels.write(fd, place, kind, wanted=None, replaced=None)

            uid, gid = self._owners.uid(owner), self._owners.primary_group(owner)
            put_dir(walk.fd, name, mode=mode, uid=uid, gid=gid, label=label)
            made.append(place)

        try:
            with open_parent(self._root, path, make) as parent:
                yield parent, made
        # BaseException: a cancelled update must not leave directories behind either.
        except BaseException:
            # The deepest directory comes first. One that another program filled in the meantime stays.
            for place in reversed(made):
                with suppress(OSError, AgentError), open_parent(self._root, place) as above:
                    os.rmdir(above.name, dir_fd=above.fd)
            raise

    def _read(self, parent: Parent, info: os.stat_result) -> FileTreeEntry:
        if stat.S_ISLNK(info.st_mode):
            target = os.readlink(parent.name, dir_fd=parent.fd)
            return SymbolicLink(target, info.st_uid, info.st_gid, self._label_at(parent))
        if stat.S_ISDIR(info.st_mode):
            return directories.read(parent, info, self._labels)
        # Another program may write the file during the read. A few attempts find it at rest.
        for _ in range(_READ_TRIES):
            fd = _open_file(parent)
            try:
                info = os.fstat(fd)
                content = self._content(fd, info, parent)
                if content is not None:
                    # If the directory is removed with its last file, a revert restores mode and owner.
                    above = os.fstat(parent.fd)
                    return RegularFile(
                        content,
                        stat.S_IMODE(info.st_mode),
                        info.st_uid,
                        info.st_gid,
                        self._labels.read(fd),
                        dir_mode=stat.S_IMODE(above.st_mode),
                        dir_owner=above.st_uid,
                    )
            finally:
                os.close(fd)
        raise Retryable(f"{parent.walk.path} changes while it is read", reason=Reason.PATH_CHANGED)

    def _content(self, fd: int, info: os.stat_result, parent: Parent) -> bytes | None:
        """Return the content, or None if it changed during the read: a revert must not restore a mixture."""
        # The bound protects the memory of the daemon, because the content is kept for a revert.
        if info.st_size > self._limit:
            raise Terminal(
                f"{parent.walk.path} has {info.st_size} bytes; more than {self._limit} are not kept for a revert",
                reason=Reason.FILE_TOO_LARGE,
                hint="move the file away if it is not needed at this path",
            )
        with os.fdopen(fd, "rb", buffering=0, closefd=False) as file:
            # One byte more than the size shows whether the file grew.
            content = file.read(info.st_size + 1)
        after = os.fstat(fd)
        # Size and time of the last change are compared on the open file, which a rename cannot exchange.
        same = (after.st_size, after.st_mtime_ns) == (info.st_size, info.st_mtime_ns)
        return content if same and len(content) == info.st_size else None

    def _differences(self, parent: Parent, info: os.stat_result, node: FileTreeEntry) -> Iterator[str]:
        is_link = stat.S_ISLNK(info.st_mode)
        if not isinstance(node, Directory) and is_link != isinstance(node, SymbolicLink):
            yield "is a symbolic link, not a file" if is_link else "is a file, not a symbolic link"
            return
        match node:
            case SymbolicLink(target):
                if os.readlink(parent.name, dir_fd=parent.fd) != target:
                    yield "points elsewhere"
            case RegularFile(content, mode):
                # Type and mode are compared before the content, which is the only expensive part.
                if stat.S_IMODE(info.st_mode) != mode:
                    yield f"mode is {stat.S_IMODE(info.st_mode):04o}, not {mode:04o}"
                # A different size decides without a read of the content.
                if info.st_size != len(content) or self._read_content(parent) != content:
                    yield "content differs"
            case Directory():
                yield from directories.differences(info, node)
        yield from self._owner_differences(info, node)
        if node.label is not None and self._labels.enabled:
            label = self._label_at(parent)
            if label != node.label:
                yield f"SELinux label is {label}, not {node.label}"

    def _owner_differences(self, info: os.stat_result, node: FileTreeEntry) -> Iterator[str]:
        if problem := self.owner_problem(node):
            yield problem
            return
        uid, gid = self._ids(node)
        owner = (info.st_uid if uid is None else uid, info.st_gid if gid is None else gid)
        if (info.st_uid, info.st_gid) != owner:
            yield f"owner is {info.st_uid}:{info.st_gid}, not {owner[0]}:{owner[1]}"

    def _read_content(self, parent: Parent) -> bytes | None:
        fd = _open_file(parent)
        try:
            return self._content(fd, os.fstat(fd), parent)
        finally:
            os.close(fd)

    def _label_of(self, parent: Parent, info: os.stat_result, node: FileTreeEntry) -> str | None:
        """Return the label of the replaced entry if it has the same type; links have other labels than files."""
        return self._label_at(parent) if stat.S_ISLNK(info.st_mode) == isinstance(node, SymbolicLink) else None

    def _label_at(self, parent: Parent) -> str | None:
        if not self._labels.enabled:
            return None
        # O_PATH gives a handle of a symbolic link itself, and needs no permission to read.
        fd = os.open(parent.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent.fd)
        try:
            return self._labels.read(fd)
        finally:
            os.close(fd)


def _open_file(parent: Parent) -> int:
    # O_NONBLOCK: if the path became a pipe in the meantime, the open must not wait for a writer.
    fd = os.open(
        parent.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=parent.fd
    )
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Retryable(f"{parent.walk.path} was replaced while it was read", reason=Reason.PATH_CHANGED)
    return fd


def _sweep(parent: Parent, left: list[Problem]) -> None:
    """Remove files, links and empty directories with a temporary name from one directory.

    Their owner does not matter: an interrupted write may have set the final owner already.
    """
    for name in os.listdir(parent.fd):  # noqa: PTH208 - a Path has no handle
        # Only names that the agent makes itself are considered. They contain a prefix and a random token.
        if not is_temp(name):
            continue
        path = parent.walk.resolved(name)
        try:
            kind = os.stat(name, dir_fd=parent.fd, follow_symlinks=False).st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind) or stat.S_ISDIR(kind)):
                left.append(Problem(path, "is a device, socket or pipe, which nodeagent never creates"))
                continue
            remove_temp(name, parent.fd)
        except FileNotFoundError:
            continue
        except OSError as error:
            left.append(Problem(path, fault(error, "remove", path).message))


def _on_thread(
    method: Callable[Concatenate[DiskFiles, _P], _T],
) -> Callable[Concatenate[HostFiles, _P], Coroutine[Any, Any, _T]]:
    """Return ``method`` as a method of ``HostFiles``, which runs it in its thread."""

    async def call(self: HostFiles, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        work = partial(method, self.disk, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self.thread, work)

    return call


class HostFiles:
    """Implements ``ports.Files``: the calls of ``DiskFiles``, one after the other in its own thread.

    If a caller is cancelled, a write that has begun still completes. The next call, usually the revert, must come after
    it. Therefore there is one thread, not a pool.
    """

    def __init__(self, root: str = "/", *, disk: DiskFiles | None = None) -> None:
        self.disk = disk or DiskFiles(root)
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="files")

    capture = _on_thread(DiskFiles.capture)
    install = _on_thread(DiskFiles.install)
    remove = _on_thread(DiskFiles.remove)
    differs = _on_thread(DiskFiles.differs)
    missing_dirs = _on_thread(DiskFiles.missing_dirs)
    resolved = _on_thread(DiskFiles.resolved)
    survey = _on_thread(DiskFiles.survey)
    owner_problem = _on_thread(DiskFiles.owner_problem)
    contested = _on_thread(DiskFiles.contested)
    sweep = _on_thread(DiskFiles.sweep)
