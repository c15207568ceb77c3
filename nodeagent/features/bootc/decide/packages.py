# SPDX-License-Identifier: Apache-2.0
"""The packages of an image, from the headers in its rpm database, and how those of two images differ.

A header begins with the number of its entries and the size of their data. An entry has tag, type, place in the data and
count; numbers are big-endian (RPM's format of headers, version 3 and later). ``compare_versions`` is RPM's order of
versions (``rpmvercmp``).
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from nodeagent.core.plan.os_changes import PackageChange, PackageChangeKind

_SIZES: Final = struct.Struct(">II")
_ENTRY: Final = struct.Struct(">IIII")
_NUMBER: Final = struct.Struct(">I")

_NAME, _VERSION, _RELEASE, _EPOCH, _ARCHITECTURE = 1000, 1001, 1002, 1003, 1022
_TEXTS: Final = (_NAME, _VERSION, _RELEASE, _ARCHITECTURE)
_TYPE_NUMBER, _TYPE_TEXT = 4, 6
# A header of RPM 4 and 6 has about 100 entries.
_MAX_ENTRIES: Final = 10_000

# Imported keys of signatures, which are in the database as packages. rpm-ostree leaves them out, too.
_KEYS: Final = "gpg-pubkey"

_SEGMENT: Final = re.compile(r"[0-9]+|[a-zA-Z]+|~|\^")


@dataclass(frozen=True, slots=True)
class Package:
    """``evr`` is epoch, version and release as RPM writes them; an epoch of 0 is left out."""

    name: str
    architecture: str
    evr: str


def package_of(header: bytes) -> Package | None:
    """Return the package of a header, of which the end may be missing; None for a key.

    Raises ``ValueError`` for other data.
    """
    texts, epoch = dict.fromkeys(_TEXTS, ""), 0
    try:
        count, _ = _SIZES.unpack_from(header)
        if count > _MAX_ENTRIES:
            raise ValueError("a header with too many entries")
        data = _SIZES.size + count * _ENTRY.size
        for tag, kind, place, _ in _ENTRY.iter_unpack(header[_SIZES.size : data]):
            if tag in texts and kind == _TYPE_TEXT:
                texts[tag] = header[data + place : header.index(b"\0", data + place)].decode()
            elif tag == _EPOCH and kind == _TYPE_NUMBER:
                (epoch,) = _NUMBER.unpack_from(header, data + place)
    except struct.error as error:
        raise ValueError(f"a header that is cut off: {error}") from None
    if not texts[_NAME] or not texts[_VERSION]:
        raise ValueError("a header without a name and a version")
    # A key has no architecture and no content.
    if texts[_NAME] == _KEYS:
        return None
    evr = f"{texts[_VERSION]}-{texts[_RELEASE]}"
    return Package(texts[_NAME], texts[_ARCHITECTURE], f"{epoch}:{evr}" if epoch else evr)


def package_changes(before: Iterable[Package], after: Iterable[Package]) -> tuple[PackageChange, ...]:
    """Return the packages that differ, by name. Of a name there may be several, as of kernels."""
    was, now = _by_name(before), _by_name(after)
    return tuple(change for key in sorted({*was, *now}) for change in _of_name(key[0], was[key], now[key]))


def _by_name(packages: Iterable[Package]) -> defaultdict[tuple[str, str], set[str]]:
    names: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for package in packages:
        # A package of another architecture with this name is another package.
        names[package.name, package.architecture].add(package.evr)
    return names


def _of_name(name: str, before: set[str], after: set[str]) -> Iterator[PackageChange]:
    # In the order of their versions, the oldest that left is replaced by the oldest that came.
    sides = (sorted(side, key=_SortKey) for side in (before - after, after - before))
    for old, new in zip_longest(*sides, fillvalue=""):
        if not old:
            kind = PackageChangeKind.ADDED
        elif not new:
            kind = PackageChangeKind.REMOVED
        else:
            older = compare_evr(old, new) < 0
            kind = PackageChangeKind.UPGRADED if older else PackageChangeKind.DOWNGRADED
        yield PackageChange(name, kind, old, new)


def compare_evr(one: str, other: str) -> int:
    """Return a number below, at or above 0 if ``one`` is older than, equal to or newer than ``other``."""
    (epoch, version, release), (other_epoch, other_version, other_release) = _parts(one), _parts(other)
    return epoch - other_epoch or compare_versions(version, other_version) or compare_versions(release, other_release)


def _parts(evr: str) -> tuple[int, str, str]:
    epoch, colon, rest = evr.partition(":")
    version, _, release = (rest if colon else evr).rpartition("-")
    return int(epoch) if colon else 0, version, release


def compare_versions(one: str, other: str) -> int:
    """Compare two versions or releases, as ``compare_evr``."""
    # All other characters only separate, and which ones they are makes no difference.
    for mine, theirs in zip_longest(_SEGMENT.findall(one), _SEGMENT.findall(other)):
        if mine != theirs:
            return _compare_segments(mine, theirs)
    return 0


def _compare_segments(mine: str | None, theirs: str | None) -> int:
    # A tilde is older than the end of a version, and a caret newer than that and older than all else.
    for mark, at_the_end in (("~", 1), ("^", -1)):
        if mine == mark:
            return -1 if theirs is not None else -at_the_end
        if theirs == mark:
            return 1 if mine is not None else at_the_end
    if mine is None or theirs is None:
        return 1 if theirs is None else -1
    if mine.isdigit() and theirs.isdigit():
        return int(mine) - int(theirs)
    # A number is newer than letters. Of two numbers the value counts, not their digits.
    if mine.isdigit() or theirs.isdigit():
        return 1 if mine.isdigit() else -1
    return 1 if mine > theirs else -1


class _SortKey:
    """The place of a version in their order."""

    def __init__(self, evr: str) -> None:
        self._evr = evr

    def __lt__(self, other: _SortKey) -> bool:
        return compare_evr(self._evr, other._evr) < 0
