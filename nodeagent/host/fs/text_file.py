# SPDX-License-Identifier: Apache-2.0
"""A small text file that is replaced as a whole, so that readers never see it half-written.

It is not durable on purpose: its content describes the current state and is outdated after a power cut.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from nodeagent.host.fs.selinux import Labels

MODE = 0o644


class TextFile:
    """A text file. The methods block and may be called from any thread. They raise OSError.

    After ``remove`` nothing is written: the thread of a cancelled task must not restore the file.
    """

    def __init__(self, path: str, labels: Labels | None = None) -> None:
        self.path = path
        self._labels = labels or Labels()
        self._target = Path(path)
        # Not *.prom, so no collector reads it.
        self._temporary = self._target.with_name(f".{self._target.name}.new")
        self._lock = threading.Lock()
        self._removed = False

    def write(self, text: str) -> None:
        with self._lock:
            if self._removed:
                return
            # A killed process may have left the file.
            self._temporary.unlink(missing_ok=True)
            try:
                # An entry of another user must not be followed.
                with self._temporary.open("x", encoding="utf-8") as file:
                    # It would have the label of its directory.
                    self._labels.write_new(file.fileno(), self.path, MODE)
                    file.write(text)
                    # Exporters are not root, so the mode must not depend on the umask.
                    os.fchmod(file.fileno(), MODE)
                self._temporary.replace(self._target)
            except OSError:
                # On a full disk, half a text must not keep the space.
                with suppress(OSError):
                    self._temporary.unlink(missing_ok=True)
                raise

    def remove(self) -> None:
        with self._lock:
            self._removed = True
            self._unlink()

    def clear(self) -> None:
        """Remove the file until it is written again."""
        with self._lock:
            self._unlink()

    def _unlink(self) -> None:
        for path in (self._temporary, self._target):
            path.unlink(missing_ok=True)
