# SPDX-License-Identifier: Apache-2.0
"""Find paths of the host that two entries of a config claim, and files where another entry needs a directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nodeagent.core.config import schema
from nodeagent.core.config.machineconfig import FileEntry, LinkEntry
from nodeagent.core.config.problems import Location, shown


class PathConflicts:
    """Entries other than files claim their paths one at a time; the files are checked against them at the end."""

    def __init__(self) -> None:
        self._claims: dict[str, Location] = {}
        self._directories: set[str] = set()

    def claim(self, path: str, where: Location, *, directory: bool = False) -> bool:
        """Return whether no other entry has claimed ``path``."""
        if path in self._claims:
            where.bad("", f"{shown(path)} has two entries, the other is {self._claims[path].path}")
            return False
        self._claims[path] = where
        if directory:
            self._directories.add(path)
        return True

    def check(self, files: Mapping[str, FileEntry | LinkEntry], items: Sequence[schema.File], where: Location) -> None:
        """Report all conflicts of ``files``, which were read from ``items`` at ``where``."""
        # A set has no order. It does not matter here, because the problems are sorted when they are reported.
        for path in self._claims.keys() & files.keys():
            self._claims[path].bad("", f"{shown(path)} has two entries, the other is in {where.path}")
        # A declared directory may have entries below it. Nothing else may: the later write would find a file in its
        # way, or replace it, depending on the order.
        solid = (self._claims.keys() - self._directories) | files.keys()
        parents = {path.rpartition("/")[0] for path in (*self._claims, *files)}
        above = {path for start in parents for path in _upwards(start) if path in solid}
        # Thousands of files have no conflict, and need no index of their places.
        indexes = {item.path: index for index, item in enumerate(items)} if above else {}
        for path in sorted(above):
            claim = self._claims[path] if path in self._claims else where.item(indexes[path]).child("path")
            claim.bad("", f"{shown(path)} is the directory of other entries")


def _upwards(path: str) -> Iterator[str]:
    """Yield ``path`` and the directories above it, without the root."""
    # A generator, because together the paths can be long.
    while path:
        yield path
        path = path.rpartition("/")[0]
