"""The short way from ``JsonFile`` to ``FileEntry``, for entries in the usual form.

It may leave any entry to the long way (``files``), or the whole list, but must never take what the long way refuses,
and both must build the same entries. This is most of the time of a plan, and written for speed: what the config before
had as well is not read again, entries of the same form are read together, and paths are checked for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

import msgspec

from nodeagent.core.config.machineconfig import MAX_ID, MAX_MODE, FileEntry
from nodeagent.core.config.paths import managed_directories
from nodeagent.core.config.text.data_url import ContentError, decode_together, split
from nodeagent.core.config.text.jsonfile import JsonContents, JsonFile, JsonOwner, JsonVerification

__all__ = ["Cache", "QuickFiles", "read_usual"]

_TOGETHER: Final = 64  # entries read as one: enough to spread the cost of the calls, and still in the cache


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


@dataclass(slots=True)
class Cache:
    """What the config before had. The two configs of a plan differ in few files."""

    files: dict[str, FileEntry] = field(default_factory=dict)
    items: dict[str, JsonFile] = field(default_factory=dict)
    parents: set[str] = field(default_factory=set)
    colons: int = 0


def read_usual(items: list[JsonFile], cache: Cache) -> QuickFiles | None:
    """None if something is wrong that is looked for in many entries together. Then ``cache`` is as before."""
    by_path = {item.path: item for item in items}
    if len(by_path) < len(items):
        return None  # two entries for one path
    fresh: Sequence[int] = range(len(items))
    if cache.items:
        known = map(cache.items.get, by_path)
        fresh = [index for index, (item, was) in enumerate(zip(items, known, strict=True)) if item != was]
    reader = _Reader(items)
    try:
        if len(fresh) <= len(items) // 2:
            reader.start_from(cache, by_path, fresh)
            reader.read(fresh)
        else:
            reader.read(range(len(items)))
        return reader.finish(cache, by_path)
    except ValueError:
        return None


class _Form(msgspec.Struct, gc=False):
    """What entries have in common that differ in their path and data only."""

    mode: int
    user: int
    group: int
    overwrite: bool
    is_base64: bool
    colons: int


_Key = tuple[int | None, bool | None, JsonOwner | None, JsonOwner | None, str | None, JsonVerification | None, bytes]
"""Mode, overwrite, user, group, compression, verification and the source up to its comma."""


class _Alike:
    """Some entries with the same key. ``data`` is what follows the comma, up to and with the quote."""

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.paths: list[str] = []
        self.data: list[bytes] = []


class _Reader:
    """All methods raise ``ValueError`` for what must be left to the long way altogether."""

    def __init__(self, items: list[JsonFile]) -> None:
        self._items = items
        self._files: dict[str, FileEntry] = {}
        self._parents: set[str] = set()
        self._rest: list[int] = []
        self._colons = 0
        self._forms: dict[_Key, _Form | None] = {}

    def start_from(self, cache: Cache, by_path: dict[str, JsonFile], fresh: Sequence[int]) -> None:
        """Takes what the config before had as well: all but ``fresh``."""
        removed = cache.items.keys() - by_path.keys()
        changed = cache.items.keys() & {self._items[index].path for index in fresh}
        self._files = cache.files.copy()
        self._colons = cache.colons
        for path in removed | changed:
            del self._files[path]
            self._colons -= cache.items[path].colons()
        self._parents = {path.rpartition("/")[0] for path in self._files} if removed else cache.parents

    def read(self, indexes: Sequence[int]) -> None:
        paths = [self._items[index].path for index in indexes]
        self._parents = self._parents.union(managed_directories(paths))
        for start in range(0, len(indexes), _TOGETHER):
            groups = defaultdict[_Key, _Alike](_Alike)
            before, alike = None, _Alike()
            for index in indexes[start : start + _TOGETHER]:
                item = self._items[index]
                contents = item.contents
                if contents is None:
                    self._rest.append(index)
                    continue
                header, _, data = bytes(contents.source).partition(b",")
                shape = item.mode, item.overwrite, item.user, item.group
                key = *shape, contents.compression, contents.verification, header
                if key != before:  # neighbours are alike: comparing them takes less than a look into the groups
                    before, alike = key, groups[key]
                alike.indexes.append(index)
                alike.paths.append(item.path)
                alike.data.append(data)
            for key, alike in groups.items():
                self._take(key, alike)

    def _take(self, key: _Key, alike: _Alike) -> None:
        if key not in self._forms:
            self._forms[key] = _form(*key)
        form = self._forms[key]
        if form is None:
            self._rest += alike.indexes
            return
        contents = decode_together(alike.data, is_base64=form.is_base64)
        self._colons += form.colons * len(contents) + "".join(alike.paths).count(":")
        if not form.is_base64:
            self._colons += sum(data.count(b":") for data in alike.data if b":" in data)
        columns = repeat(form.mode), repeat(form.user), repeat(form.group), repeat(form.overwrite)
        self._files.update(zip(alike.paths, map(FileEntry, alike.paths, contents, *columns), strict=True))

    def finish(self, cache: Cache, by_path: dict[str, JsonFile]) -> QuickFiles:
        files, colons = self._files, self._colons
        if self._rest:
            files = files.copy()  # the rest will come to these, and is not for the cache
            for index in self._rest:
                item = self._items[index]
                del by_path[item.path]
                colons += _left(item)
        cache.files, cache.items, cache.parents, cache.colons = self._files, by_path, self._parents, self._colons
        return QuickFiles(self._items, files, set(self._parents), sorted(self._rest), colons)


def _form(
    mode: int | None,
    overwrite: bool | None,
    user: JsonOwner | None,
    group: JsonOwner | None,
    compression: str | None,
    verification: JsonVerification | None,
    header: bytes,
) -> _Form | None:
    """None for what needs the long way."""
    uid, gid, bits = _owner(user), _owner(group), 0o644 if mode is None else mode
    if uid is None or gid is None or not 0 <= bits <= MAX_MODE or header[:1] != b'"':
        return None
    if compression or (verification is not None and verification.hash is not None):
        return None
    try:
        is_base64, _ = split(header[1:].decode() + ",")
    except ContentError:
        return None
    contents = JsonContents(msgspec.Raw(header + b',"'), compression, verification)
    colons = JsonFile("", contents, mode, overwrite, user, group).colons()
    return _Form(bits, uid, gid, overwrite is not False, is_base64, colons)


def _owner(owner: JsonOwner | None) -> int | None:
    """The number; None for what needs the long way."""
    if owner is None:
        return 0
    if owner.id is None:
        return 0 if owner.name in (None, "", "root") else None
    return owner.id if 0 <= owner.id <= MAX_ID and not owner.name else None


def _left(item: JsonFile) -> int:
    """The colons of an entry that is left to the long way."""
    source = b"" if item.contents is None else bytes(item.contents.source)
    if source[:1] not in (b"", b'"', b"n"):  # absent, a string or null
        raise ValueError("a source that is no text")
    item.plain()
    return item.colons()
