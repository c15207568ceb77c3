"""The short way from ``JsonFile`` to ``FileEntry``, for entries in the usual form.

It may leave any entry to the long way (``files``) but must never take one that the long way refuses, and both must
build the same entry. This loop runs for every file of a config and is most of the time of a plan: it is written for
speed, in one pass, without calls for what is usual, and decodes nothing that an earlier config had as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from nodeagent.core.dataurl import ContentError, decode_base64, decode_percent, split
from nodeagent.core.jsonfile import JsonFile, JsonOwner
from nodeagent.core.machineconfig import MAX_ID, MAX_MODE, FileEntry
from nodeagent.core.paths import SPECIAL_PATHS, managed_path_problem

__all__ = ["Cache", "QuickFiles", "read_usual"]

Cache = dict[str, tuple[JsonFile, FileEntry, str, int]]
"""Entries by path that an earlier config was found to have, with their directory and their colons. The two configs of
a plan differ in few files."""

# Longest path and name that need no look at their bytes: a character has at most 4.
_SHORT_PATH: Final = 1000
_SHORT_NAME: Final = 60


@dataclass(slots=True)
class QuickFiles:
    """What came of ``items``. ``parents`` are the directories of ``files``; ``rest`` what was left, by its index.

    ``colons`` is how many the text of ``items`` has if it has no key twice: one for each key, and those in strings.
    """

    items: list[JsonFile]
    files: dict[str, FileEntry] = field(default_factory=dict)
    parents: set[str] = field(default_factory=set)
    rest: list[int] = field(default_factory=list)
    colons: int = 0


def read_usual(items: list[JsonFile], cache: Cache) -> QuickFiles:
    quick = QuickFiles(items)
    files, parents, colons = quick.files, quick.parents, 0
    headers: dict[str, tuple[bool, int]] = {}
    for index, item in enumerate(items):
        known = cache.get(item.path)
        if known is None or known[0] != item:
            known = _usual(item, parents, headers)
            if known is None:
                quick.rest.append(index)
                colons += _colons(item.plain())
                continue
            cache[item.path] = known
        _, entry, parent, count = known
        colons += count
        path = entry.path
        if path in files:
            quick.rest.append(index)
            continue
        files[path] = entry
        parents.add(parent)
    quick.colons = colons
    return quick


def _usual(
    item: JsonFile, parents: set[str], headers: dict[str, tuple[bool, int]]
) -> tuple[JsonFile, FileEntry, str, int] | None:
    """None for whatever is not plainly in order. ``headers`` are those of data URLs seen: base64 or not, colons."""
    path, contents, mode, user, group = item.path, item.contents, item.mode, item.user, item.group
    parent, _, name = path.rpartition("/")
    if not 0 < len(name) <= _SHORT_NAME or len(path) > _SHORT_PATH or not name.isprintable():
        return None
    if (parent not in parents or path in SPECIAL_PATHS or name in (".", "..")) and managed_path_problem(path):
        return None
    colons = 1 + path.count(":")
    if mode is None:
        mode = 0o644
    elif 0 <= mode <= MAX_MODE:
        colons += 1
    else:
        return None
    if item.overwrite is not None:
        colons += 1
    uid = gid = 0
    if user is not None:
        uid, count = _owner(user)
        colons += count
    if group is not None:
        gid, count = _owner(group)
        colons += count
    if uid < 0 or gid < 0:
        return None
    content = b""
    if contents is not None:
        if contents.compression:
            return None
        colons += 1 + (contents.compression is not None)
        if contents.verification is not None:
            if contents.verification.hash is not None:
                return None
            colons += 1
        source = contents.source
        if source is not None:
            colons += 1
        if source:
            try:
                start = source.find(",") + 1
                header = source[:start]
                if header not in headers:
                    is_base64, start = split(source)
                    headers[source[:start]] = is_base64, source.count(":", 0, start)
                is_base64, count = headers[source[:start]]
                colons += count
                if is_base64:
                    content = decode_base64(source[start:])
                else:
                    content, count = decode_percent(source[start:])
                    colons += count
            except ContentError:
                return None
    return item, FileEntry(path, content, mode, uid, gid, item.overwrite is not False), parent, colons


def _owner(owner: JsonOwner) -> tuple[int, int]:
    """The number, -1 for what needs the long way; and the colons."""
    number, name = owner.id, owner.name
    if number is None:
        if name is None:
            return 0, 1
        return (0 if name in ("", "root") else -1), 2
    return (number if 0 <= number <= MAX_ID and not name else -1), 2 + (name is not None)


def _colons(data: object) -> int:
    """The same for plain data."""
    if isinstance(data, dict):
        return sum(1 + key.count(":") + _colons(value) for key, value in data.items())
    return data.count(":") if isinstance(data, str) else 0
