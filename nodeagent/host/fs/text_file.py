"""A small text file that is replaced as a whole, so that readers never see it half-written.

It is not durable on purpose: its content describes the current state and is outdated after a power cut.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

__all__ = ["TextFile"]

MODE = 0o644


class TextFile:
    """A text file. The methods block and may be called from any thread. They raise OSError.

    After ``remove`` nothing is written: the thread of a cancelled task must not restore the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._target = Path(path)
        self._temporary = self._target.with_name(f".{self._target.name}.new")  # not *.prom, so no collector reads it
        self._lock = threading.Lock()
        self._removed = False

    def write(self, text: str) -> None:
        with self._lock:
            if self._removed:
                return
            self._temporary.unlink(missing_ok=True)  # of a process that was killed
            with self._temporary.open("x", encoding="utf-8") as file:  # an entry of another user must not be followed
                file.write(text)
                os.fchmod(file.fileno(), MODE)  # whatever the umask is: exporters are not root
            self._temporary.replace(self._target)

    def remove(self) -> None:
        with self._lock:
            self._removed = True
            for path in (self._temporary, self._target):
                path.unlink(missing_ok=True)
