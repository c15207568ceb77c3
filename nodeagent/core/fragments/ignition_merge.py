# SPDX-License-Identifier: Apache-2.0
"""Merge two Ignition configs of specification 3 as Ignition does (``config/merge`` of coreos/ignition v2).

An object is merged key by key, and the value of the child counts. Entries of a list are merged by their key; those that
only the child has follow. null means absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Object = Mapping[str, Any]

# The key of an entry, by the name of its list. An entry that is a string is its own key.
_KEYS: Final = {
    "certificateAuthorities": "source",
    "directories": "path",
    "disks": "device",
    "dropins": "name",
    "files": "path",
    "filesystems": "device",
    "groups": "name",
    "httpHeaders": "name",
    "links": "path",
    "luks": "name",
    "merge": "source",
    "raid": "name",
    "tang": "url",
    "units": "name",
    "users": "name",
}
# Lists of which all entries count, those of the parent first.
_APPENDED: Final = frozenset({"append", "mountOptions", "options"})
# Lists that share their keys: an entry of the child takes the one of the parent away, also from another list.
_SHARED: Final = (frozenset({"directories", "files", "links"}), frozenset({"shouldExist", "shouldNotExist"}))


def merge_ignition(parent: Object, child: Object) -> dict[str, Any]:
    """Return the Ignition config that is ``parent`` with what ``child`` says otherwise. Both are valid."""
    merged: dict[str, Any] = {}
    for name in dict.fromkeys((*parent, *child)):
        before, after = parent.get(name), child.get(name)
        if isinstance(before, list) or isinstance(after, list):
            if entries := _merge_lists(name, before or [], after or [], _taken_from(name, child)):
                merged[name] = entries
        elif isinstance(before, Mapping) and isinstance(after, Mapping):
            merged[name] = _merge_contents(before, after) if name == "contents" else merge_ignition(before, after)
        elif after is not None or before is not None:
            merged[name] = before if after is None else after
    return merged


def _merge_contents(parent: Object, child: Object) -> dict[str, Any]:
    """Merge the contents of a file. The compression belongs to the source (coreos/butane issue 332)."""
    if child.get("source") is not None:
        parent = {name: value for name, value in parent.items() if name != "compression"}
    return merge_ignition(parent, child)


def _merge_lists(name: str, parent: Sequence[Any], child: Sequence[Any], taken: frozenset[str]) -> list[Any]:
    if name in _APPENDED:
        return [*parent, *child]
    of_child = {_key(name, entry): entry for entry in child}
    of_parent = {_key(name, entry) for entry in parent}
    merged = []
    for entry in parent:
        key = _key(name, entry)
        if key in of_child:
            other = of_child[key]
            # A header without a value takes that of the parent away.
            if name != "httpHeaders" or other.get("value") is not None:
                merged.append(other if isinstance(other, str) else merge_ignition(entry, other))
        elif key not in taken:
            merged.append(entry)
    return [*merged, *(entry for key, entry in of_child.items() if key not in of_parent)]


def _taken_from(name: str, child: Object) -> frozenset[str]:
    """Return the keys that the child has in a list that shares them with the list ``name``."""
    shared = next((names for names in _SHARED if name in names), frozenset())
    return frozenset(_key(other, entry) for other in shared - {name} for entry in child.get(other) or ())


def _key(name: str, entry: Any) -> str:
    if isinstance(entry, str):
        return entry
    if name == "partitions":
        return f"number:{entry['number']}" if entry.get("number") else f"label:{entry.get('label')}"
    return str(entry.get(_KEYS.get(name, "name")) or "")
