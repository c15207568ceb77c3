"""inotify(7) of one directory, with the C library, because Python has no binding.

The packages that have one run ldconfig to find the C library at every start.
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
"""A change of an entry: IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO, IN_DELETE."""
GONE = 0x8000
"""IN_IGNORED: the directory was removed or unmounted; no more events follow."""
OVERFLOW = 0x4000
"""IN_Q_OVERFLOW: events were lost."""
_ONLYDIR = 0x1000000

_EVENT = struct.Struct("iIII")  # descriptor of the watch, mask, cookie, bytes of the name that follows
_BUFFER = 64 * 1024


class Watch:
    """A watch for changes of all entries. A context manager closes it. ``fileno()`` is readable if events wait."""

    def __init__(self, directory: str) -> None:
        """Begin to watch. Raises ``OSError`` if the directory is missing or no inotify instance is free."""
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
        """Yield the events so far: one of the masks above and the name of the entry, "" for GONE and OVERFLOW."""
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
