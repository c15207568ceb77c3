# SPDX-License-Identifier: Apache-2.0
"""The interface of the origins of an interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

from bundle.lock import InterpreterLock

# On the host.
HOME = "/usr/lib/nodeagent"

PYTHON = PurePosixPath("bin", "python3")
LICENSES = PurePosixPath("licenses")

Wanted = Callable[[PurePosixPath], bool]
Files = Iterator[tuple[PurePosixPath, bytes]]


class Part(NamedTuple):
    """What one component of an interpreter was made of."""

    name: str
    version: str  # empty if the lock does not have it
    purl: str
    sha256: tuple[str, ...]  # of the files that were fetched


class Origin(Protocol):
    def files(self, lock: InterpreterLock, wanted: Wanted) -> Files:
        """Yield the files of the interpreter, fit for a host, by their paths. Raises BuildError.

        They are bin/python3, lib/pythonX.Y, libraries in lib, and licenses/COMPONENT/LICENSE. `wanted` is false for
        paths that need not be yielded.
        """

    def parts(self, lock: InterpreterLock) -> list[Part]:
        """Return what the components were made of."""


def library_of(lock: InterpreterLock) -> PurePosixPath:
    return PurePosixPath("lib", f"python{lock.short}")
