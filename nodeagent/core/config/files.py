"""``storage.files`` of an Ignition config to ``FileEntry``, key by key and with all problems of each entry."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from nodeagent.core.config.fields import Fields
from nodeagent.core.config.machineconfig import MAX_ID, MAX_MODE, FileEntry
from nodeagent.core.config.paths import managed_path_problem
from nodeagent.core.config.problems import MAX_QUOTED, Problems, shown
from nodeagent.core.config.text.data_url import MAX_FILE_BYTES, ContentError, decode, gunzip
from nodeagent.core.config.text.quickfiles import QuickFiles
from nodeagent.core.config.unsupported import Unapplied

__all__ = ["MAX_UNPACKED_BYTES", "FileReader"]

MAX_UNPACKED_BYTES: Final = 64 * 1024 * 1024  # of all compressed files of one config together

_HASH = re.compile(r"(sha256|sha512)-([0-9a-fA-F]+)")
_DIGEST_CHARS: Final = {"sha256": 64, "sha512": 128}
_OCTAL = re.compile(r"(?:0o)?[0-7]{3,5}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,254}\$?")


class FileReader:
    """Reads the files of one config into ``files``."""

    def __init__(self, problems: Problems, unapplied: Unapplied, *, version2: bool) -> None:
        self.files: dict[str, FileEntry] = {}
        self.parents: set[str] = set()  # directories of good paths
        self._problems = problems
        self._unapplied = unapplied
        self._version2 = version2
        self._unpacked = 0
        self._appended: set[str] = set()

    def read(self, items: list[object], path: str) -> None:
        """Reads all of them, objects of a document; ``path`` is where their list is."""
        for index, item in enumerate(items):
            self._read(Fields(item, f"{path}[{index}]", self._problems))

    def finish(self, quick: QuickFiles, path: str) -> None:
        """The same where the short way did most of it."""
        self.files, self.parents = quick.files, quick.parents
        for index in quick.rest:
            self._read(Fields(quick.items[index].plain(), f"{path}[{index}]", self._problems))

    def _read(self, fields: Fields) -> None:
        path = fields.text("path") or ""
        fields.about = _about(path)
        problem = managed_path_problem(path)
        if problem is not None:
            fields.bad("path", f"{shown(path)} {problem}" if path else problem)
        if self._version2:
            if fields.text("filesystem") != "root":
                fields.bad("filesystem", "must be root: files go to no other filesystem")
            append = bool(fields.flag("append"))
        else:
            append = bool(fields.items("append"))
        mode = _mode(fields)
        if mode is not None and not 0 <= mode <= MAX_MODE:
            fields.bad("mode", f"invalid mode 0{mode:o}, cannot exceed 0{MAX_MODE:o}" if mode > 0 else "is negative")
        overwrite = fields.flag("overwrite")
        user, group = _owner(fields.child("user")), _owner(fields.child("group"))
        contents = fields.child("contents")
        headers = contents.items("httpHeaders")
        content = self._content(contents)
        contents.finish()
        if append:
            # Not ours to write: the entry means "what is there, and this".
            self._unapplied.note(f"storage.files[{path}]", fields.everything())
        fields.finish()
        if problem is not None:
            return
        if path in self.files or path in self._appended:
            fields.bad("path", f"{shown(path)} has two entries")
            return
        if append:
            self._appended.add(path)
            return
        self._unapplied.note(f"storage.files[{path}].contents.httpHeaders", headers)
        self.parents.add(path.rpartition("/")[0])
        mode = 0o644 if mode is None else mode
        self.files[path] = FileEntry(path, content, mode, user, group, overwrite is not False)

    def _content(self, fields: Fields) -> bytes:
        source = fields.text("source") or ""
        compression = fields.text("compression") or ""
        verification = fields.child("verification")
        wanted = verification.text("hash")
        verification.finish()
        if compression not in ("", "gzip"):
            fields.bad("compression", f"unsupported compression type {shown(compression)}, must be gzip or empty")
        try:
            content = decode(source) if source else b""
            if compression == "gzip" and source:
                content = self._unpack(content)
        except ContentError as error:
            fields.bad("source", str(error))
            return b""
        if wanted is not None and (problem := _hash_problem(wanted, content)):
            verification.bad("hash", problem)
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


def _about(path: str) -> str:
    """For messages, where the index of an entry means little to people."""
    return path if path.isprintable() and len(path) <= MAX_QUOTED else ""


def _mode(fields: Fields) -> int | None:
    text = fields.raw("mode")
    if isinstance(text, str) and _OCTAL.fullmatch(text):
        number = int(text.removeprefix("0o"), 8)
        fields.bad("mode", f"must be an integer, is a string: write 0{number:o} without quotes ({number} in JSON)")
        return None
    return fields.number("mode")


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
