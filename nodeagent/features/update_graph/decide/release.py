# SPDX-License-Identifier: Apache-2.0
"""What an update of the OS goes from and to, and the answer to the question whether it may.

Versions are ordered part by part (41.20241027.3.0, 4.18.0-rc.1, 9.6.20250523-0): numbers as numbers, words as words. A
word makes a version older than the same one without it, as in Semantic Versioning (4.18.0-rc.1 < 4.18.0), and a number
newer (42 < 42.1). What follows a + does not count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# A pattern of a whole version.
VERSION: Final = r"^[A-Za-z0-9][A-Za-z0-9._~+-]{0,127}$"

_PART = re.compile(r"[0-9]+|[A-Za-z]+")
# Between words (0) and numbers (2): a word after it makes a version older, and a number newer.
_END: Final = (1, 0, "")

VersionKey = tuple[tuple[int, int, str], ...]


def version_key(text: str) -> VersionKey:
    """Return a key to compare versions with."""
    # Build metadata of Semantic Versioning, which has no precedence.
    parts = _PART.findall(text.partition("+")[0])
    return (*((2, int(part), "") if part.isdigit() else (0, 0, part.lower()) for part in parts), _END)


@dataclass(frozen=True, slots=True)
class Release:
    """A version of the OS, "" if it is not known. ``contents`` are digests and checksums that identify it, too."""

    version: str
    contents: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.version or next(iter(sorted(self.contents)), "an unknown version")


@dataclass(frozen=True, slots=True)
class Jump:
    """An update of the OS to another image.

    ``kernel_arguments`` are those after the update. ``managed`` has the content of each file that the new config
    brings, and None for each file that the update removes. ``staged``: the image is on the host, so that its version is
    known if it has one.
    """

    booted: Release
    target: Release
    kernel_arguments: tuple[str, ...] = ()
    managed: Mapping[str, bytes | None] = field(default_factory=dict)
    staged: bool = False


@dataclass(frozen=True, slots=True)
class JumpAnswer:
    """The answer for a jump that nothing forbids. ``notes`` are for a plan, ``warnings`` for the history, too."""

    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def goes_up(jump: Jump) -> bool:
    """Return whether the update may go to a newer version. One to an older version is a way back."""
    booted, target = jump.booted, jump.target
    if booted.contents & target.contents:
        return False
    if not (booted.version and target.version):
        return True
    return version_key(booted.version) < version_key(target.version)
