"""Untrusted bytes to plain data (dict, list, str, int, float, bool, None), within bounded time and memory.

A text whose first characters open a JSON document is read as JSON, anything else as YAML. Both give the same kind of
data under the same rules, which are those that every reader of the field agrees on: UTF-8, one document, string keys,
no key twice, finite numbers, integers of 64 bits, no anchors, aliases or tags, bounded nesting. Every breach is
``InvalidInput``.
"""

from __future__ import annotations

import json
import re
from typing import Final

from nodeagent.core.config.problems import Problems, place, shown
from nodeagent.errors import InvalidInput

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_INT",
    "MAX_NODES",
    "check_text",
    "decode_json",
    "inspect",
    "is_json",
    "load",
    "weight",
]

MAX_BYTES: Final = 16 * 1024 * 1024  # ten times what a cluster accepts for one object (1.5 MiB), room for offline use
MAX_DEPTH: Final = 64  # a MachineConfig needs 10; json.loads itself gives up near 1000
MAX_NODES: Final = 1_000_000  # values in one document: some 100 MB of Python objects at worst
MAX_INT: Final = 2**63 - 1

_JSON_START = re.compile(rb'[ \t\r\n]*(?:\{[ \t\r\n]*["}]|\[)')
_JSON_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_UTF8_BOM: Final = b"\xef\xbb\xbf"


def load(text: bytes, what: str) -> object:
    """The data in ``text``; ``what`` names it in errors ("desired.yaml")."""
    text = check_text(text, what)
    if is_json(text):
        if weight(text) > MAX_NODES and _outside_strings(text) > MAX_NODES:
            raise InvalidInput(f"{what} has more than {MAX_NODES} values")
        data = decode_json(text, what)
        inspect(data, what)
        return data
    from nodeagent.core.config.text import yaml_document  # PyYAML is 14 ms that a JSON document need not pay

    return yaml_document.load(text, what)


def check_text(text: bytes, what: str) -> bytes:
    """``text`` without a byte order mark, known to be UTF-8, not binary, not empty and not larger than we read."""
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
    return text


def is_json(text: bytes) -> bool:
    """Whether ``text`` must be JSON: no YAML in use starts like that (a flow mapping has bare keys)."""
    return _JSON_START.match(text) is not None


class _Repeated(dict[str, object]):
    """An object with a key that came twice; the parser's hook knows the key, the later walk knows the path."""

    key: str = ""


class _Unusable:
    """A number that is no number to us. Its place is only known to the walk."""

    def __init__(self, why: str) -> None:
        self.why = why


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    data = dict(pairs)
    if len(data) == len(pairs):
        return data
    repeated = _Repeated(data)
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            repeated.key = key
            break
        seen.add(key)
    return repeated


def _integer(digits: str) -> object:
    if len(digits) <= 20 and -MAX_INT - 1 <= (value := int(digits)) <= MAX_INT:
        return value
    return _Unusable("the integer does not fit into 64 bits")


def _fraction(digits: str) -> object:
    value = float(digits)
    return value if value - value == 0 else _Unusable("the number is out of range")


def _constant(word: str) -> object:
    return _Unusable(f"{word} is not JSON")


def weight(text: bytes, start: int = 0, end: int | None = None) -> int:
    """At least the number of values in a JSON text, so that one which would explode into objects never does."""
    return text.count(b",", start, end) + text.count(b"[", start, end) + text.count(b"{", start, end)


def _outside_strings(text: bytes) -> int:
    """The weight without what is in strings, which takes time: up to the limit, and for the rare text that needs it."""
    total = end = 0
    for string in _JSON_STRING.finditer(text):
        total += weight(text, end, string.start())
        end = string.end()
        if total > MAX_NODES:
            return total
    return total + weight(text, end)


def decode_json(text: bytes, what: str) -> object:
    """JSON to data in which ``inspect`` then finds what is wrong with it beyond syntax."""
    try:
        data: object = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_fraction,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise InvalidInput(f"{what} is not valid JSON: {place}: {error.msg}") from None
    except RecursionError:
        raise InvalidInput(f"{what} is nested deeper than {MAX_DEPTH} levels") from None
    return data


def inspect(data: object, what: str, trail: tuple[str, ...] = ()) -> None:
    """What the parser lets pass: repeated keys, depth, numbers, half characters. All of them with their path.

    ``trail`` are the keys that lead to ``data`` in the document.
    """
    problems = Problems()
    _inspect(data, what, [*trail], problems)
    problems.check(what)


def _inspect(value: object, what: str, trail: list[str | int], problems: Problems) -> None:
    # Recursion as deep as the limit, and a path only for what is wrong: both grow with the input otherwise.
    if isinstance(value, str):
        if not value.isascii() and not _encodes(value):
            problems.add(place(trail), "half of a surrogate pair is not a character")
    elif isinstance(value, _Unusable):
        problems.add(place(trail), value.why)
    elif isinstance(value, dict | list):
        if len(trail) >= MAX_DEPTH:
            raise InvalidInput(f"{what} is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, _Repeated):
            problems.add(place(trail), f"the key {shown(value.key)} is there twice")
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(key, str) and not key.isascii() and not _encodes(key):
                problems.add(place(trail), f"half of a surrogate pair in the key {shown(key)}")
                continue
            trail.append(key)
            _inspect(item, what, trail, problems)
            trail.pop()


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
