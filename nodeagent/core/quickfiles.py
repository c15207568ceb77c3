"""The short way from ``JsonFile`` to ``FileEntry``, for entries in the usual form.

It may leave any entry to the long way (``files``), or the whole list, but must never take what the long way refuses,
and both must build the same entries. This is most of the time of a plan, and written for speed: what an earlier config
had as well is not read again, and paths and contents are checked and decoded for all entries together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat

import msgspec

from nodeagent.core.dataurl import ContentError, decode_base64, decode_percent, split
from nodeagent.core.jsonfile import JsonFile, JsonOwner
from nodeagent.core.machineconfig import MAX_ID, MAX_MODE, FileEntry
from nodeagent.core.paths import managed_directories

__all__ = ["Cache", "Known", "QuickFiles", "read_usual"]


class Known(msgspec.Struct, gc=False):
    """An entry that is in order, its directory, and how many colons its text has if it has no key twice."""

    item: JsonFile
    entry: FileEntry
    directory: str
    colons: int


Cache = dict[str, Known]
"""By path, what earlier configs had. The two configs of a plan differ in few files."""


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


def read_usual(items: list[JsonFile], cache: Cache) -> QuickFiles | None:
    """None if something is wrong that is looked for in all entries together."""
    quick = QuickFiles(items)
    files, parents, colons = quick.files, quick.parents, 0
    reader = _Reader()
    for index, item in enumerate(items):
        known = cache.get(item.path)
        if known is not None and known.item == item:
            files[item.path] = known.entry
            parents.add(known.directory)
            colons += known.colons
        elif not reader.take(item):
            quick.rest.append(index)
            colons += _colons(item.plain())
    try:
        for known in reader.read():
            path = known.item.path
            cache[path] = known
            files[path] = known.entry
            parents.add(known.directory)
            colons += known.colons
    except ValueError:
        return None
    if len(files) + len(quick.rest) < len(items) or any(items[index].path in files for index in quick.rest):
        return None  # two entries for one path
    quick.colons = colons
    return quick


class _Taken(msgspec.Struct, gc=False):
    """An entry in the usual form, but for its path and its content."""

    item: JsonFile
    mode: int
    user: int
    group: int
    colons: int


class _Batch:
    """Entries with their contents in the same encoding, and the ``data`` of their URLs."""

    def __init__(self) -> None:
        self.taken: list[_Taken] = []
        self.data: list[str] = []

    def known(self, contents: Iterable[bytes]) -> Iterator[Known]:
        """Raises ``ValueError`` for a bad path."""
        directories = managed_directories([taken.item.path for taken in self.taken])
        for taken, directory, content in zip(self.taken, directories, contents, strict=False):
            item = taken.item
            entry = FileEntry(item.path, content, taken.mode, taken.user, taken.group, item.overwrite is not False)
            yield Known(item, entry, directory, taken.colons)


class _Reader:
    def __init__(self) -> None:
        self._empty, self._base64, self._percent = _Batch(), _Batch(), _Batch()
        self._headers: dict[str, tuple[_Batch, int]] = {}  # of data URLs: where they belong, and their colons

    def take(self, item: JsonFile) -> bool:
        """Whether ``item`` is in the usual form. Paths and contents are for ``read``."""
        mode, contents, user, group = item.mode, item.contents, item.user, item.group
        colons = 1 + item.path.count(":") + (item.overwrite is not None)
        if mode is None:
            mode = 0o644
        elif 0 <= mode <= MAX_MODE:
            colons += 1
        else:
            return False
        uid = gid = 0
        if user is not None:
            uid, count = _owner(user)
            colons += count
        if group is not None:
            gid, count = _owner(group)
            colons += count
        if uid < 0 or gid < 0:
            return False
        batch = self._empty
        if contents is not None:
            source, verification = contents.source, contents.verification
            if contents.compression or (verification is not None and verification.hash is not None):
                return False
            colons += 1 + (source is not None) + (contents.compression is not None) + (verification is not None)
            if source:
                header, comma, data = source.partition(",")
                if not comma or (header not in self._headers and not self._know(header)):
                    return False
                batch, count = self._headers[header]
                batch.data.append(data)
                colons += count + (data.count(":") if ":" in data else 0)
        batch.taken.append(_Taken(item, mode, uid, gid, colons))
        return True

    def _know(self, header: str) -> bool:
        try:
            is_base64, _ = split(f"{header},")
        except ContentError:
            return False
        self._headers[header] = self._base64 if is_base64 else self._percent, header.count(":")
        return True

    def read(self) -> Iterator[Known]:
        """All that was taken. Raises ``ValueError`` if the path or the data of any is bad."""
        return chain(
            self._empty.known(repeat(b"")),
            self._base64.known(decode_base64(self._base64.data)),
            self._percent.known(decode_percent(self._percent.data)),
        )


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
