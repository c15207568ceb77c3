# SPDX-License-Identifier: Apache-2.0
"""Dictionaries of GVariant for the files of a host."""

from __future__ import annotations

from typing import Any


def vardict(values: dict[str, Any]) -> bytes:
    """An ``a{sv}`` of strings, lists of strings, pairs of numbers, booleans and such dictionaries."""
    out, ends = b"", []
    for key, value in values.items():
        out += b"\0" * (-len(out) % 8)
        head = key.encode() + b"\0"
        kind, data = {
            bool: lambda v: (b"b", bytes([v])),
            str: lambda v: (b"s", v.encode() + b"\0"),
            dict: lambda v: (b"a{sv}", vardict(v)),
            list: lambda v: (b"as", _strings(v)),
            tuple: lambda v: (b"(tt)", b"".join(each.to_bytes(8, "little") for each in v)),
        }[type(value)](value)
        entry = head + b"\0" * (-len(head) % 8) + data + b"\0" + kind
        out += entry + _word(len(head), len(entry), 1)
        ends.append(len(out))
    return out + b"".join(_word(end, len(out), len(ends)) for end in ends)


def _strings(values: list[str]) -> bytes:
    out, ends = b"", []
    for value in values:
        out += value.encode() + b"\0"
        ends.append(len(out))
    return out + b"".join(_word(end, len(out), len(ends)) for end in ends)


def _word(number: int, size: int, count: int) -> bytes:
    width = next(w for w in (1, 2, 4) if size + w * count < 1 << 8 * w)
    return number.to_bytes(width, "little")
