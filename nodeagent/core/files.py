"""``storage.files`` of an Ignition config to ``FileEntry``.

There are two ways in. An entry of any document arrives as an object and is read key by key with all its problems. An
entry of a JSON document arrives as ``JsonFile``, already typed, and takes a short way that knows only the usual form;
whatever it does not like, it hands to the long way. So the short way may refuse freely but may accept nothing that the
long way refuses, and both must build the same entry.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from nodeagent.core.dataurl import MAX_FILE_BYTES, ContentError, decode, gunzip
from nodeagent.core.fields import Fields
from nodeagent.core.jsonfile import JsonFile
from nodeagent.core.machineconfig import FileEntry
from nodeagent.core.paths import SPECIAL_PATHS, managed_path_problem
from nodeagent.core.problems import Problems, shown
from nodeagent.core.unapplied import Unapplied

__all__ = ["MAX_UNPACKED_BYTES", "Cache", "FileReader"]

MAX_MODE: Final = 0o777  # setuid, setgid and sticky are refused as the machine-config-daemon does
MAX_ID: Final = 2**32 - 2  # the one above means "unchanged" to chown(2)
MAX_UNPACKED_BYTES: Final = 64 * 1024 * 1024  # of all compressed files of one config together
# Longest path and name that need no look at the bytes: a character has at most 4.
_SHORT_PATH: Final = 1000
_SHORT_NAME: Final = 60

_HASH = re.compile(r"(sha256|sha512)-([0-9a-fA-F]+)")
_DIGEST_CHARS: Final = {"sha256": 64, "sha512": 128}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,254}\$?")

Cache = dict[str, tuple[JsonFile, FileEntry]]
"""Entries by path that an earlier config was found to have. The two configs of a plan differ in few files."""


class FileReader:
    """Reads the files of one config into ``files``."""

    def __init__(self, problems: Problems, unapplied: Unapplied, cache: Cache) -> None:
        self.files: dict[str, FileEntry] = {}
        self.parents: set[str] = set()  # directories of good paths
        self._problems = problems
        self._unapplied = unapplied
        self._cache = cache
        self._unpacked = 0

    def read(self, items: list[object], path: str, *, version2: bool) -> None:
        files, cache = self.files, self._cache
        for index, item in enumerate(items):
            if type(item) is JsonFile:
                known = cache.get(item.path)
                entry = known[1] if known is not None and known[0] == item else self._usual(item)
                if entry is not None and item.path not in files and not version2 and self._affordable(item, entry):
                    files[item.path] = entry
                    cache[item.path] = (item, entry)
                    continue
                item = item.plain()
            self._read(Fields(item, f"{path}[{index}]", self._problems), version2=version2)

    def _affordable(self, item: JsonFile, entry: FileEntry) -> bool:
        """Counts what was unpacked, so that a cached entry weighs the same as one that is read."""
        if item.contents is None or not item.contents.compression:
            return True
        if self._unpacked + len(entry.content) > MAX_UNPACKED_BYTES:
            return False
        self._unpacked += len(entry.content)
        return True

    def _usual(self, item: JsonFile) -> FileEntry | None:
        """The short way: None for whatever is not plainly in order."""
        path, contents = item.path, item.contents
        mode = 0o644 if item.mode is None else item.mode
        parent, _, name = path.rpartition("/")
        if (
            item.user is not None
            or item.group is not None
            or not 0 <= mode <= MAX_MODE
            or not name.isprintable()
            or not name.isascii()
            or not 0 < len(name) <= _SHORT_NAME
            or len(path) > _SHORT_PATH
        ):
            return None
        if parent not in self.parents or path in SPECIAL_PATHS or name in (".", ".."):
            if managed_path_problem(path) is not None:
                return None
            self.parents.add(parent)
        content = b""
        if contents is not None:
            if contents.verification is not None and contents.verification.hash is not None:
                return None
            try:
                if contents.source:
                    content = decode(contents.source)
                if contents.compression and contents.source:
                    if contents.compression != "gzip":
                        return None
                    content = gunzip(content, min(MAX_FILE_BYTES, MAX_UNPACKED_BYTES - self._unpacked))
            except ContentError:
                return None
        return FileEntry(path, content, mode, 0, 0, item.overwrite is not False)

    def _read(self, fields: Fields, *, version2: bool) -> None:
        path = fields.text("path") or ""
        problem = managed_path_problem(path)
        if problem is not None:
            fields.bad("path", f"{shown(path)} {problem}" if path else problem)
        if version2:
            self._check_filesystem(fields)
            append: object = fields.flag("append")
        else:
            append = fields.items("append")
        mode = fields.number("mode")
        if mode is not None and not 0 <= mode <= MAX_MODE:
            fields.bad("mode", f"invalid mode {mode:#o}, cannot exceed {MAX_MODE:#o}" if mode > 0 else "is negative")
        overwrite = fields.flag("overwrite")
        user = _owner(fields.child("user"))
        group = _owner(fields.child("group"))
        contents = fields.child("contents")
        headers = contents.items("httpHeaders")
        content = self._content(contents)
        contents.finish()
        fields.finish()
        if problem is not None:
            return
        if append:
            # Not ours to write: the entry means "what is there, and this".
            self._unapplied.note(f"storage.files[{path}]", fields.everything())
            return
        if headers:
            self._unapplied.note(f"storage.files[{path}].contents.httpHeaders", headers)
        if path in self.files:
            fields.bad("path", f"{shown(path)} has two entries")
            return
        self.parents.add(path.rpartition("/")[0])
        self.files[path] = FileEntry(
            path,
            content,
            0o644 if mode is None else mode,
            user,
            group,
            overwrite is not False,
        )

    @staticmethod
    def _check_filesystem(fields: Fields) -> None:
        filesystem = fields.text("filesystem")
        if filesystem != "root":
            fields.bad("filesystem", "must be root: files go to no other filesystem")

    def _content(self, fields: Fields) -> bytes:
        source = fields.text("source") or ""
        compression = fields.text("compression") or ""
        verification = fields.child("verification")
        wanted = verification.text("hash")
        verification.finish()
        if compression not in ("", "gzip"):
            fields.bad("compression", f"unsupported compression type {shown(compression)}, must be gzip or empty")
            return b""
        try:
            content = decode(source) if source else b""
            if compression and source:
                content = self._unpack(content)
        except ContentError as error:
            fields.bad("source", str(error))
            return b""
        if wanted is not None and (problem := _hash_problem(wanted, content)):
            fields.bad("verification.hash", problem)
        return content

    def _unpack(self, packed: bytes) -> bytes:
        left = MAX_UNPACKED_BYTES - self._unpacked
        if left <= 0:
            raise ContentError(f"not unpacked: the files before it took all of {MAX_UNPACKED_BYTES} bytes")
        limit = min(MAX_FILE_BYTES, left)
        try:
            content = gunzip(packed, limit)
        except ContentError:
            self._unpacked += limit  # so that a thousand bombs take no longer than a few
            raise
        self._unpacked += len(content)
        return content


def _hash_problem(wanted: str, content: bytes) -> str | None:
    match = _HASH.fullmatch(wanted)
    if match is None or len(match[2]) != _DIGEST_CHARS[match[1]]:
        return "must be sha512- or sha256- and the digest in hexadecimal"
    if hashlib.new(match[1], content).hexdigest() != match[2].lower():
        return f"the content has another {match[1]}"
    return None


def _owner(fields: Fields) -> int | str:
    number, name = fields.number("id"), fields.text("name")
    fields.finish()
    if number is not None and name:
        fields.bad("", "id and name cannot both be set")
    if number is not None and not 0 <= number <= MAX_ID:
        fields.bad("id", f"must be 0 to {MAX_ID}")
    if name and not _NAME.fullmatch(name):
        fields.bad("name", f"{shown(name)} is not a name of a user or group")
    if number is not None:
        return number
    # The one name whose number is the same on every host; so that writing it either way is no change.
    return name if name and name != "root" else 0
