"""Who claims which path of the host: two entries for one path, or a file where another entry needs a directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from nodeagent.core.machineconfig import FileEntry
from nodeagent.core.problems import Problems, shown
from nodeagent.core.quickfiles import QuickFiles

__all__ = ["Places"]


class Places:
    """Entries other than files claim their paths one by one; the files, which are many, come in at the end."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._claims: dict[str, str] = {}
        self._directories: set[str] = set()

    def claim(self, path: str, place: str, *, directory: bool = False) -> None:
        """``place`` is where in the document the claim is made."""
        if path in self._claims:
            self._problems.add(place, f"{shown(path)} has two entries, the other is {self._claims[path]}")
            return
        self._claims[path] = place
        if directory:
            self._directories.add(path)

    def check(self, files: Mapping[str, FileEntry], parents: Set[str], items: object, place: str) -> None:
        """``parents`` are the directories of ``files``; ``items`` what was read, in the document at ``place``."""
        for path, claim in self._claims.items():
            if path in files:
                self._problems.add(claim, f"{shown(path)} has two entries, the other is in {place}")
        index: dict[str, int] = {}
        for path in _with_ancestors(parents, self._claims):
            if path in files:
                index = index or _index(items)
                self._problems.add(f"{place}[{index[path]}].path", f"{shown(path)} is the directory of other entries")
            if path in self._claims and path not in self._directories:
                self._problems.add(self._claims[path], f"{shown(path)} is the directory of other entries")


def _with_ancestors(parents: Set[str], claims: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for start in (*parents, *(path.rpartition("/")[0] for path in claims)):
        path = start
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return found


def _index(items: object) -> dict[str, int]:
    if isinstance(items, QuickFiles):
        return {item.path: number for number, item in enumerate(items.items)}
    assert isinstance(items, list)  # or there were no files
    return {str(item.get("path")): number for number, item in enumerate(items) if isinstance(item, dict)}
