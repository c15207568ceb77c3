"""Who claims which path of the host: two entries for one path, or a file where another entry needs a directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from nodeagent.core.config.machineconfig import FileEntry
from nodeagent.core.config.problems import Problems, shown
from nodeagent.core.config.text.quickfiles import QuickFiles

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
        needed = {path.rpartition("/")[0] for path in self._claims} | parents
        solid = self._claims.keys() - self._directories
        above = {path for start in needed for path in _upwards(start) if path in files or path in solid}
        index = _index(items) if above else {}
        for path in sorted(above):
            claim = self._claims[path] if path in solid else f"{place}[{index[path]}].path"
            self._problems.add(claim, f"{shown(path)} is the directory of other entries")


def _upwards(path: str) -> Iterator[str]:
    """``path`` and the directories above it, without the root. A generator: all of them can be a lot of text."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def _index(items: object) -> dict[str, int]:
    if isinstance(items, QuickFiles):
        return {item.path: number for number, item in enumerate(items.items)}
    assert isinstance(items, list)  # or there were no files
    return {str(item.get("path")): number for number, item in enumerate(items) if isinstance(item, dict)}
