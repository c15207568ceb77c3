# SPDX-License-Identifier: Apache-2.0
"""Dictionaries of GVariant, as libostree and rpm-ostree write them to files: the type ``a{sv}``.

In the GVariant specification, values are adjacent, each aligned as its type requires. A container ends with the end
offsets of its members of variable size, in little-endian words of 1, 2, 4 or 8 bytes, depending on the size of the
container. A variant is its value, a zero byte and its type. root wrote the data, but perhaps with a later version: data
that does not fit raises ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Mapping

# Type and serialized value.
Variant = tuple[str, bytes]

# Bytes that are read; the state of a staged deployment has a few hundred.
MAX_BYTES = 1 << 20


def read_vardict(data: bytes) -> Mapping[str, Variant]:
    """Read an ``a{sv}``. The values stay serialized; ``string``, ``strings`` and ``boolean`` read them."""
    if len(data) > MAX_BYTES:
        raise ValueError("too large")
    entries: dict[str, Variant] = {}
    start = 0
    for end in _element_ends(data):
        # Entries are aligned to 8, like variants.
        start = _aligned(start)
        if end < start:
            raise ValueError("an entry ends before it begins")
        key, value = _entry(data[start:end])
        entries[key] = value
        start = end
    return entries


def string(value: Variant | None) -> str | None:
    """Return a string, or None if the value has another type."""
    if value is None or value[0] != "s":
        return None
    return _string(value[1])


def strings(value: Variant | None) -> tuple[str, ...] | None:
    """Return an ``as``, or None if the value has another type."""
    if value is None or value[0] != "as":
        return None
    texts, start = [], 0
    for end in _element_ends(value[1]):
        if end < start:
            raise ValueError("a string ends before it begins")
        texts.append(_string(value[1][start:end]))
        start = end
    return tuple(texts)


def boolean(value: Variant | None) -> bool | None:
    """Return a boolean, or None if the value has another type."""
    if value is None or value[0] != "b":
        return None
    if value[1] not in (b"\0", b"\1"):
        raise ValueError("neither true nor false")
    return value[1] == b"\1"


def device_and_inode(value: Variant | None) -> tuple[int, int] | None:
    """Return a pair of numbers, ``(tt)``, or None if the value has another type."""
    if value is None or value[0] != "(tt)" or len(value[1]) != 16:
        return None
    return _number(value[1], 0, 8), _number(value[1], 8, 8)


def _element_ends(data: bytes) -> list[int]:
    """Return the end offsets of an array whose elements have a variable size."""
    if not data:
        return []
    word = _word(len(data))
    # The last offset is where the offsets begin.
    first = _number(data, len(data) - word, word)
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
    # A variant is its value, a zero byte, and the type.
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
    # Offsets of GVariant are as wide as the size of their container requires.
    return 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4


def _aligned(offset: int) -> int:
    return (offset + 7) & ~7
