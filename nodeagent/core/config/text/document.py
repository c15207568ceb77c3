# SPDX-License-Identifier: Apache-2.0
"""Decode untrusted bytes to plain data (dict, list, str, int, float, bool, None) in bounded time and memory.

A text that starts like a JSON document is read as JSON, any other text as YAML. Both give the same data under the same
rules, on which the readers of the field agree: UTF-8, one document, string keys, finite numbers, integers of 64 bits,
no anchors, aliases or tags, bounded nesting. Every violation raises ``InvalidInput``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Final

from nodeagent.core.config.problems import Problems, place, shown
from nodeagent.core.config.text import plain_json, yaml_document
from nodeagent.core.config.text.limits import MAX_BYTES, MAX_DEPTH, MAX_INT, MAX_NODES
from nodeagent.errors import InvalidInput

_JSON_START = re.compile(rb'[ \t\r\n]*(?:\{[ \t\r\n]*["}]|\[)')
_JSON_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_UTF8_BOM: Final = b"\xef\xbb\xbf"


def load(text: bytes, what: str, *, unique_keys: bool = True, aliases: bool = False) -> object:
    """Return the data in ``text``; ``what`` names it in errors ("desired.yaml").

    ``unique_keys`` False: in JSON, the last of repeated keys counts. YAML with a repeated key is never read.
    ``aliases``: in YAML, anchors and aliases are read.
    """
    text = check_text(text, what)
    if is_json(text):
        data = _decode_json(text, what, unique_keys=unique_keys)
    else:
        data = yaml_document.load(text, what, aliases=aliases)
    inspect(data, what)
    return data


def load_strict(content: bytes) -> tuple[object, tuple[str, ...]]:
    """Decode JSON for a file whose program is strict: no YAML, no repeated keys.

    Return the data and the problems of the text. If there are problems, the data is None.
    """
    if not is_json(content):
        return None, ("is not a JSON object",)
    try:
        return load(content, "the file"), ()
    except InvalidInput as error:
        return None, tuple(f"{p.path}: {p.message}" for p in error.problems) or (error.message,)


def check_text(text: bytes, what: str) -> bytes:
    """Return ``text`` without a byte order mark if it is UTF-8, not binary, not empty and of a bounded size."""
    if len(text) > MAX_BYTES:
        raise InvalidInput(f"{what} is {len(text)} bytes; at most {MAX_BYTES} are read")
    if b"\0" in text:
        raise InvalidInput(f"{what} is not text: it has a NUL byte at offset {text.index(0)}")
    text = text.removeprefix(_UTF8_BOM)
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{what} is not UTF-8 at offset {error.start}") from None
    if not text or text.isspace():
        raise InvalidInput(f"{what} is empty")
    # A value takes at least two bytes with its comma.
    if len(text) > 2 * MAX_NODES and is_json(text) and _commas(text) > MAX_NODES and _values(text) > MAX_NODES:
        raise InvalidInput(f"{what} has more than {MAX_NODES} values")
    return text


def is_json(text: bytes) -> bool:
    """Return whether ``text`` must be JSON. No YAML in use starts like that: a flow mapping has bare keys."""
    return _JSON_START.match(text) is not None


def _commas(text: bytes, start: int = 0, end: int | None = None) -> int:
    """At least the number of values in a JSON text: commas and opening brackets, in strings as well."""
    return text.count(b",", start, end) + text.count(b"[", start, end) + text.count(b"{", start, end)


def _values(text: bytes) -> int:
    """Return the same without strings."""
    # Slow, so it stops at the limit, and runs only for the rare text that may exceed it.
    total = end = 0
    for string in _JSON_STRING.finditer(text):
        total += _commas(text, end, string.start())
        end = string.end()
        if total > MAX_NODES:
            return total
    return total + _commas(text, end)


class _Repeated(dict[str, object]):
    """An object with a repeated key. The decoder knows the key, ``inspect`` knows the path."""

    key: str = ""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    data = dict(pairs)
    if len(data) == len(pairs):
        return data
    repeated = _Repeated(data)
    repeated.key = Counter(key for key, _ in pairs).most_common(1)[0][0]
    return repeated


def _decode_json(text: bytes, what: str, *, unique_keys: bool) -> object:
    try:
        return plain_json.loads(text, on_object=_object if unique_keys else None)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise InvalidInput(f"{what} is not valid JSON: {where}: {error.msg}") from None
    except ValueError as error:
        # Nesting, or the number of digits. The rest of the message is a remedy for programmers.
        raise InvalidInput(f"{what} is not valid JSON: {str(error).partition(':')[0]}") from None


def inspect(data: object, what: str, trail: tuple[str, ...] = ()) -> None:
    """Check the rules that the decoder does not know. Raises ``InvalidInput`` with all violations and their paths.

    ``trail`` are the keys that lead to ``data`` in the document.
    """
    problems = Problems()
    _inspect(data, what, [*trail], problems)
    problems.check(what)


def _inspect(value: object, what: str, trail: list[str | int], problems: Problems) -> None:
    # The limit of the depth bounds the recursion. Paths are built for violations only, to keep the time linear.
    if isinstance(value, str):
        if not value.isascii() and not encodes(value):
            problems.add(place(trail), "half of a surrogate pair is not a character")
    elif isinstance(value, int):
        if not -MAX_INT - 1 <= value <= MAX_INT:
            problems.add(place(trail), "the integer does not fit into 64 bits")
    elif isinstance(value, float):
        # True of infinity and NaN, which Python's decoder accepts and JSON does not have.
        if value - value != 0:
            problems.add(place(trail), "the number is not finite or too long")
    elif isinstance(value, dict | list):
        if len(trail) >= MAX_DEPTH:
            # Raised at once instead of collected: to go on would let the input choose the depth of this recursion.
            raise InvalidInput(f"{what} is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, _Repeated):
            problems.add(place(trail), f"the key {shown(value.key)} occurs twice")
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(key, str) and not key.isascii() and not encodes(key):
                problems.add(place(trail), f"half of a surrogate pair in the key {shown(key)}")
                continue
            trail.append(key)
            _inspect(item, what, trail, problems)
            trail.pop()


def encodes(text: str) -> bool:
    """Return whether ``text`` has a form in UTF-8: half of a surrogate pair has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
