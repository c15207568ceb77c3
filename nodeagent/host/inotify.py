# SPDX-License-Identifier: Apache-2.0
"""inotify(7) of directories, with the C library, because Python has no binding.

The packages that have one run ldconfig to find the C library at every start.
"""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from collections.abc import Collection, Iterator
from typing import Self

from nodeagent.host.c_library import c_library

# linux/inotify.h
# A change of an entry: IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO, IN_DELETE.
CHANGED = 0x8 | 0x40 | 0x80 | 0x200

# IN_CREATE: also a directory, or a link, which have no IN_CLOSE_WRITE.
CREATED = 0x100

# IN_IGNORED, IN_MOVE_SELF: the directory was removed, unmounted or moved.
GONE = 0x8000 | 0x800

# IN_Q_OVERFLOW: events were lost.
OVERFLOW = 0x4000

# IN_ATTRIB, IN_CREATE: another mode or owner; a new entry.
_TOUCHED = 0x4 | CREATED
_MOVE_SELF = 0x800
_ONLYDIR = 0x1000000

# Descriptor of the watch, mask, cookie, bytes of the name that follows.
_EVENT = struct.Struct("iIII")
_BUFFER = 64 * 1024


class _Instance:
    """One inotify instance."""

    def __init__(self) -> None:
        self._library = c_library()
        self._fd = _checked(self._library.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK), "inotify")

    async def readable(self) -> None:
        """Wait until there are events."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _add(self, directory: str, mask: int) -> int:
        # A path that is no directory any more must fail here. A watch of a file would end with its next replacement.
        watch = self._library.inotify_add_watch(self._fd, os.fsencode(directory), mask | _ONLYDIR)
        return _checked(watch, directory)

    def _events(self) -> Iterator[tuple[int, int, str]]:
        try:
            data = os.read(self._fd, _BUFFER)
        except BlockingIOError:
            return
        offset = 0
        while offset < len(data):
            watch, mask, _cookie, size = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size
            yield watch, mask, os.fsdecode(data[offset : offset + size].rstrip(b"\0"))
            offset += size


class Watch(_Instance):
    """A watch of all entries. A context manager closes it."""

    def __init__(self, directory: str, mask: int = CHANGED) -> None:
        """Begin to watch for ``mask``. Raises ``OSError`` if the directory is missing, or without a free instance."""
        super().__init__()
        try:
            self._add(directory, mask)
        except OSError:
            self.close()
            raise

    def read(self) -> Iterator[tuple[int, str]]:
        """Yield the events so far: one of the masks above and the name of the entry, "" for GONE and OVERFLOW."""
        for _watch, mask, name in self._events():
            yield mask, name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class DirectoryWatches(_Instance):
    """Watches of several directories for changes of their entries, modes and owners included."""

    def __init__(self) -> None:
        """Raises ``OSError`` if no inotify instance is free."""
        super().__init__()
        # Two paths may lead to one directory.
        self._directories: dict[int, set[str]] = {}

    def watch(self, directories: Collection[str]) -> list[str]:
        """Watch these directories instead of the previous ones. Returns those that cannot be watched."""
        watched: dict[int, set[str]] = {}
        failed = []
        for directory in directories:
            try:
                watched.setdefault(self._add(directory, CHANGED | _TOUCHED | _MOVE_SELF), set()).add(directory)
            except OSError as error:
                # A missing directory appears in the one above it.
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    failed.append(directory)
        for watch in self._directories.keys() - watched.keys():
            # It fails for a directory that is gone, which removed the watch.
            self._library.inotify_rm_watch(self._fd, watch)
        self._directories = watched
        return failed

    def read(self) -> Iterator[tuple[int, str, str]]:
        """Yield the events so far as mask, directory and name; the directory is "" for OVERFLOW."""
        for watch, mask, name in self._events():
            if mask & OVERFLOW:
                yield mask, "", ""
            # Without a directory: the last event of a watch that was removed.
            for directory in self._directories.get(watch, ()):
                yield mask, directory, name


def _checked(result: int, path: str) -> int:
    if result < 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result
