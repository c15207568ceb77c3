# SPDX-License-Identifier: Apache-2.0
"""A target, and objects of another form that are made of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from nodeagent.core.config.text import plain_json


@dataclass(frozen=True, slots=True)
class Target:
    """``run`` raises for a fault of the code, and returns for every other input."""

    name: str
    run: Callable[[bytes], None]
    seeds: Sequence[bytes]


# What a value of a document is replaced with.
VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    2**70,
    1e308,
    float("inf"),
    "http://[",
    "",
    "x",
    "7",
    "2026-01-01T00:00:00Z",
    "\ud800",
    "\x1b[2J",
    "x" * 300,
    [],
    [None],
    ["x"],
    [7],
    [[]],
    [{}],
    {},
    {"a": 1},
    {"a": None},
    {"name": "a"},
    {"": {}},
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container of the document with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def odd(sample: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Return ``sample`` with one value replaced or removed for each three bytes, at most eight."""
    found = deepcopy(sample)
    for at in range(0, min(len(data), 24) - 2, 3):
        every = list(places(found))
        if not every:
            break
        container, key = every[(data[at] << 8 | data[at + 1]) % len(every)]
        choice = data[at + 2]
        if choice == 255 and isinstance(container, dict):
            del container[key]
        else:
            container[key] = deepcopy(VALUES[choice % len(VALUES)])
    return found


def document(sample: dict[str, Any], data: bytes) -> dict[str, Any] | None:
    """Return the JSON object in ``data``, or the odd sample; None for another text."""
    if not data.startswith(b"{"):
        return odd(sample, data)
    return plain_json.object_of(data)


def choices(count: int = 6) -> list[bytes]:
    """Seeds of ``odd``: nothing, and one replaced value each."""
    return [b"", *(bytes([0, place * 5 % 256, place * 11 % 256]) for place in range(count))]
