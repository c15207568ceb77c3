# SPDX-License-Identifier: Apache-2.0
"""Convert ``storage.files``, ``directories`` and ``links`` of an Ignition config to entries."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from nodeagent.core.config import fetched, schema
from nodeagent.core.config.conflicts import PathConflicts
from nodeagent.core.config.machineconfig import MAX_ID, MAX_MODE, DirectoryEntry, FileEntry, LinkEntry
from nodeagent.core.config.paths import MAX_PATH_BYTES, UNIT_DIR, has_control, managed_path_problem
from nodeagent.core.config.problems import Location, shown
from nodeagent.core.config.text.data_url import MAX_FILE_BYTES, ContentError, decode, gunzip
from nodeagent.core.config.unsupported import UnsupportedSections

# Of all compressed files of one config together.
MAX_UNPACKED_BYTES: Final = 64 * 1024 * 1024

_HASH = re.compile(r"(sha256|sha512)-([0-9a-fA-F]+)")
_DIGEST_CHARS: Final = {"sha256": 64, "sha512": 128}
# A dollar sign at the end is the convention of Samba for accounts of machines, and useradd accepts it.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,254}\$?")

_Item = TypeVar("_Item", schema.IgnitionDirectory, schema.IgnitionLink)
_TOP: Final = "is a directory of the OS, whose mode and owner stay; a directory below it is managed"


class FileReader:
    """Reads the files of one config into ``files``."""

    def __init__(self, unsupported: UnsupportedSections) -> None:
        self.files: dict[str, FileEntry] = {}
        # Those that are links to what is fetched.
        self.fetched: dict[str, LinkEntry] = {}
        self._unsupported = unsupported
        self._unpacked = 0
        self._appended: set[str] = set()

    def read(self, files: Sequence[schema.File], where: Location) -> None:
        """Read all ``files``, whose list is at ``where``."""
        for index, file in enumerate(files):
            self._read(file, where.item(index, file.path))

    def _read(self, file: schema.File, where: Location) -> None:
        path = file.path or ""
        problem = managed_path_problem(path)
        if problem is not None:
            where.bad("path", f"{shown(path)} {problem}" if path else problem)
        _check_mode(file.mode, where)
        user, group = _owner(file.user, "user", where) or 0, _owner(file.group, "group", where) or 0
        is_fetched = fetched.is_fetched(file)
        content = b"" if file.contents is None or is_fetched else self._content(file.contents, where)
        link = fetched.read(file, where) if is_fetched else None
        # Owner, mode and contents are checked under an invalid path too, so that the author gets all problems at once.
        if problem is not None:
            return
        if path in self.files or path in self._appended or path in self.fetched:
            where.bad("path", f"{shown(path)} has two entries")
        elif link is not None and fetched.is_own(path):
            self._unsupported.record(f"storage.files[{path}]", file)
        elif link is not None:
            self.fetched[path] = link
        elif file.append:
            # The entry adds to a file of the host. Repeating that on a running host would add it twice.
            self._appended.add(path)
            self._unsupported.record(f"storage.files[{path}]", file)
        else:
            headers = None if file.contents is None else file.contents.http_headers
            if headers:
                self._unsupported.record(f"storage.files[{path}].contents.httpHeaders", headers)
            # The default of Ignition, whatever the umask.
            mode = 0o644 if file.mode is None else file.mode
            self.files[path] = FileEntry(path, content, mode, user, group, file.overwrite is not False)

    def _content(self, contents: schema.Contents, where: Location) -> bytes:
        source, compression = contents.source, contents.compression
        if compression not in (None, "", "gzip"):
            problem = f"unsupported compression type {shown(compression)}, must be gzip or empty"
            where.bad("contents.compression", problem)
        try:
            content = decode(source) if source else b""
            if compression == "gzip" and source:
                content = self._unpack(content)
        except ContentError as error:
            where.bad("contents.source", str(error))
            return b""
        wanted = None if contents.verification is None else contents.verification.hash
        if wanted is not None and (problem := _hash_problem(wanted, content)):
            where.bad("contents.verification.hash", problem)
        return content

    def _unpack(self, packed: bytes) -> bytes:
        # The limit covers all files of the config together, because each is kept in memory.
        left = MAX_UNPACKED_BYTES - self._unpacked
        if left <= 0:
            raise ContentError(f"not unpacked: the files before it took all of {MAX_UNPACKED_BYTES} bytes")
        limit = min(MAX_FILE_BYTES, left)
        try:
            content = gunzip(packed, limit)
        except ContentError:
            # A thousand gzip bombs must not take longer than a few.
            self._unpacked += limit
            raise
        self._unpacked += len(content)
        return content


def read_directories(
    items: Sequence[schema.IgnitionDirectory],
    unsupported: UnsupportedSections,
    conflicts: PathConflicts,
    where: Location,
) -> dict[str, DirectoryEntry]:
    """Return the directories by their paths. ``where`` is the location of the list."""
    directories: dict[str, DirectoryEntry] = {}
    for path, item, at in _items(items, conflicts, where):
        _check_mode(item.mode, at)
        user, group = _owner(item.user, "user", at), _owner(item.group, "group", at)
        # A wrong mode of /etc or /var would lock all programs out, and those that are missing cannot be made on ostree.
        if path.count("/") == 1:
            at.bad("path", f"{shown(path)} {_TOP}")
        # A config that the host was provisioned with may have it, so it is no error as long as it does not change.
        if item.overwrite:
            unsupported.record(f"storage.directories[{path}].overwrite", item.overwrite)
        directories[path] = DirectoryEntry(path, item.mode, user, group)
    return directories


def read_links(
    items: Sequence[schema.IgnitionLink], unsupported: UnsupportedSections, conflicts: PathConflicts, where: Location
) -> dict[str, LinkEntry]:
    """Return the symbolic links by their paths. ``where`` is the location of the list."""
    links: dict[str, LinkEntry] = {}
    for path, item, at in _items(items, conflicts, where):
        user, group = _owner(item.user, "user", at) or 0, _owner(item.group, "group", at) or 0
        target = item.target or ""
        if not target:
            at.bad("target", "is missing")
        elif has_control(target) or len(target.encode(errors="surrogatepass")) > MAX_PATH_BYTES:
            at.bad("target", f"must be at most {MAX_PATH_BYTES} bytes without control characters")
        # Links of units follow from the entries of units, and are made and removed with them.
        if item.hard or path.startswith(f"{UNIT_DIR}/"):
            unsupported.record(f"storage.links[{path}]", item)
        else:
            links[path] = LinkEntry(path, target, user, group)
    return links


def _items(items: Sequence[_Item], conflicts: PathConflicts, where: Location) -> Iterator[tuple[str, _Item, Location]]:
    """Yield the entries with a valid path that no other entry has, and claim it."""
    for index, item in enumerate(items):
        path = item.path or ""
        at = where.item(index, item.path)
        if problem := managed_path_problem(path):
            at.bad("path", f"{shown(path)} {problem}" if path else problem)
        elif conflicts.claim(path, at.child("path"), directory=isinstance(item, schema.IgnitionDirectory)):
            yield path, item, at


def _hash_problem(wanted: str, content: bytes) -> str:
    match = _HASH.fullmatch(wanted)
    if match is None or len(match[2]) != _DIGEST_CHARS[match[1]]:
        return "must be sha512- or sha256- and the digest in hexadecimal"
    if hashlib.new(match[1], content).hexdigest() != match[2].lower():
        return f"the content has another {match[1]}"
    return ""


def _check_mode(mode: int | None, where: Location) -> None:
    if mode is not None and not 0 <= mode <= MAX_MODE:
        too_high = f"invalid mode 0{mode:o}, cannot exceed 0{MAX_MODE:o}{_octal_advice(mode)}"
        where.bad("mode", too_high if mode > 0 else "is negative")


def _owner(owner: schema.Owner | None, key: str, where: Location) -> int | str | None:
    """Return the owner that an entry names, None if it names none."""
    if owner is None:
        return None
    if owner.id is not None and owner.name:
        where.bad(key, "id and name cannot both be set")
    if owner.id is not None and not 0 <= owner.id <= MAX_ID:
        where.bad(f"{key}.id", f"must be 0 to {MAX_ID}")
    if owner.name and not _NAME.fullmatch(owner.name):
        where.bad(f"{key}.name", f"{shown(owner.name)} is not a name of a user or group")
    if owner.id is not None:
        return owner.id
    # The ID of root is the same on every host, so that both forms compare as equal.
    return 0 if owner.name == "root" else owner.name or None


def _octal_advice(mode: int) -> str:
    """Return the remedy for a mode whose leading zero was forgotten, such as 644, or that is of Git."""
    # Git writes the mode of a file as 100644.
    digits = str(mode).removeprefix("100")
    if len(digits) != 3 or set(digits) - set("01234567"):
        return ""
    return f": {mode} is decimal; write 0{digits} ({int(digits, 8)} in JSON)"
