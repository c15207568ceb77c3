"""inotify(7) of one directory. Of the C library, because Python has no binding of its own.

The packages that have one look for the C library by running ldconfig, at every start of the agent.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import Self

__all__ = ["CHANGED", "GONE", "OVERFLOW", "Watch"]

# linux/inotify.h
CHANGED = 0x8 | 0x40 | 0x80 | 0x200
"""Of an entry: IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO, IN_DELETE."""
GONE = 0x8000
"""IN_IGNORED: the directory was removed or unmounted, and nothing more will come."""
OVERFLOW = 0x4000
"""IN_Q_OVERFLOW: something happened that nobody can tell any more."""
_ONLYDIR = 0x1000000

_EVENT = struct.Struct("iIII")  # descriptor of the watch, mask, cookie, bytes of the name that follows
_BUFFER = 64 * 1024


class Watch:
    """Open from the start, closed as a context manager. ``fileno()`` is readable when ``read()`` has something."""

    def __init__(self, directory: str) -> None:
        """Of every change of an entry. Raises ``OSError``: no such directory, no instances left."""
        library = ctypes.CDLL(None, use_errno=True)
        self._fd = _checked(library.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK), directory)
        try:
            _checked(library.inotify_add_watch(self._fd, os.fsencode(directory), CHANGED | _ONLYDIR), directory)
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        return self._fd

    def read(self) -> Iterator[tuple[int, str]]:
        """What happened since, as one of the masks above and the entry's name, "" for GONE and OVERFLOW."""
        try:
            data = os.read(self._fd, _BUFFER)
        except BlockingIOError:
            return
        offset = 0
        while offset < len(data):
            _watch, mask, _cookie, size = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size
            yield mask, os.fsdecode(data[offset : offset + size].rstrip(b"\0"))
            offset += size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _checked(result: int, path: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result
