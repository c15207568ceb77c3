# SPDX-License-Identifier: Apache-2.0
"""Directories of machines: each is held by the process that runs the machine, however that ends.

A directory without a holder is from a run that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

LOCK = "lock"


def claim(directory: Path) -> TextIO:
    """Make `directory`; it is held until what this returns is closed."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _alone(directory.parent):
        directory.mkdir()
        held = (directory / LOCK).open("w")
        fcntl.flock(held, fcntl.LOCK_EX)
    return held


def leftovers(parent: Path, pattern: str) -> Iterator[Path]:
    """Yield the directories without a holder. Each is held during its turn, and a new claim of it waits."""
    if not parent.is_dir():
        return
    with _alone(parent):
        for directory in parent.glob(pattern):
            with contextlib.suppress(FileNotFoundError), (directory / LOCK).open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # in use by a parallel run
                yield directory


@contextlib.contextmanager
def _alone(parent: Path) -> Iterator[None]:
    """One that is being made is not held yet, and would be taken for a leftover."""
    with (parent / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
