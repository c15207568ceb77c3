"""A small text file that others read while it is rewritten: replaced as a whole, never seen half-written.

Not durable on purpose: it says how things are now, and after a power cut they are not.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

__all__ = ["TextFile"]

MODE = 0o644


class TextFile:
    """Blocking; both methods may be called from any thread, and after ``remove`` nothing is written any more: a writer
    that was left behind by a cancelled task must not put the file back. Raises OSError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._target = Path(path)
        self._temporary = self._target.with_name(f".{self._target.name}.new")  # not *.prom: nobody reads it
        self._lock = threading.Lock()
        self._removed = False

    def write(self, text: str) -> None:
        with self._lock:
            if self._removed:
                return
            self._temporary.unlink(missing_ok=True)  # of a process that was killed
            with self._temporary.open("x", encoding="utf-8") as file:  # a link that somebody put there is not followed
                file.write(text)
                os.fchmod(file.fileno(), MODE)  # whatever the umask is: exporters are not root
            self._temporary.replace(self._target)

    def remove(self) -> None:
        with self._lock:
            self._removed = True
            for path in (self._temporary, self._target):
                path.unlink(missing_ok=True)
