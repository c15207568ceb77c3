"""Reads the little of GVariant's format that libostree and rpm-ostree leave in /run: dictionaries of ``a{sv}``.

The layout is that of the GVariant specification: values back to back, each aligned as its type asks; where a container
ends, the ends of its members of variable size are listed in little-endian words of 1, 2, 4 or 8 bytes, whichever the
size of the container needs. A variant is its value, a zero byte and its type.

What is read was written by root on this host, but perhaps by a later version: whatever does not fit is ``ValueError``,
never an index out of range.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Variant", "boolean", "read_vardict", "string", "strings"]

Variant = tuple[str, bytes]
"""Type and serialized value."""

_MAX = 1 << 20  # bytes; the state of a staged deployment has a few hundred


def read_vardict(data: bytes) -> Mapping[str, Variant]:
    """An ``a{sv}``. The values stay as they are: ``string`` and ``boolean`` read those that somebody wants."""
    if len(data) > _MAX:
        raise ValueError("too large")
    entries: dict[str, Variant] = {}
    start = 0
    for end in _element_ends(data):
        start = _aligned(start)  # a variant starts at 8, so does every entry
        if end < start:
            raise ValueError("an entry ends before it begins")
        key, value = _entry(data[start:end])
        entries[key] = value
        start = end
    return entries


def string(value: Variant | None) -> str | None:
    """None if it is no string."""
    if value is None or value[0] != "s":
        return None
    return _string(value[1])


def strings(value: Variant | None) -> tuple[str, ...] | None:
    """An ``as``; None if it is something else."""
    if value is None or value[0] != "as":
        return None
    found, start = [], 0
    for end in _element_ends(value[1]):
        if end < start:
            raise ValueError("a string ends before it begins")
        found.append(_string(value[1][start:end]))
        start = end
    return tuple(found)


def boolean(value: Variant | None) -> bool | None:
    if value is None or value[0] != "b":
        return None
    if value[1] not in (b"\0", b"\1"):
        raise ValueError("neither true nor false")
    return value[1] == b"\1"


def _element_ends(data: bytes) -> list[int]:
    """Of the elements of an array whose elements have no fixed size."""
    if not data:
        return []
    word = _word(len(data))
    first = _number(data, len(data) - word, word)  # the last offset tells where the offsets begin
    table = data[first:]
    if first > len(data) or not table or len(table) % word:
        raise ValueError("the table of offsets does not fit")
    return [_number(table, at, word) for at in range(0, len(table), word)]


def _entry(data: bytes) -> tuple[str, Variant]:
    word = _word(len(data))
    if len(data) < word:
        raise ValueError("an entry without an offset")
    end = _number(data, len(data) - word, word)
    return _string(data[:end]), _variant(data[_aligned(end) : len(data) - word])


def _variant(data: bytes) -> Variant:
    value, zero, kind = data.rpartition(b"\0")
    if not zero or not kind:
        raise ValueError("a variant without a type")
    return kind.decode("ascii", "replace"), value


def _string(data: bytes) -> str:
    if data[-1:] != b"\0":
        raise ValueError("a string without an end")
    return data[:-1].decode("utf-8", "replace")


def _number(data: bytes, at: int, word: int) -> int:
    return int.from_bytes(data[at : at + word], "little")


def _word(size: int) -> int:
    return 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4


def _aligned(offset: int) -> int:
    return (offset + 7) & ~7
