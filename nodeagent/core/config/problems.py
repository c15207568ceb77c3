# SPDX-License-Identifier: Apache-2.0
"""Collect all problems of one input, so that they are reported together and in a stable order.

Messages are for the authors of the input. They may quote names and paths of it (``shown`` keeps those short and on one
line) and never contain content, hashes or URLs, which can hold secrets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from nodeagent.errors import InvalidInput, Problem

# More than an author reads; it keeps an answer over D-Bus or in a terminal small.
MAX_SHOWN: Final = 100
# Of a hostile input. Further problems are only counted.
MAX_KEPT: Final = 10_000
# Characters of the input in one message.
MAX_QUOTED: Final = 100
# Of the problems that differ in an index only: one wrong replacement can make a hundred of them.
MAX_ALIKE: Final = 3

_DIGITS = re.compile(r"\d+")
_KINDS: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number with a fraction",
    str: "a string",
    list: "a list",
}


def shown(text: str) -> str:
    """``text`` quoted, escaped and cut, for use inside a message."""
    return repr(_cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"


def place(trail: Iterable[str | int]) -> str:
    """Return the path of a value from the keys and indexes that lead to it; long keys are cut."""
    path = ""
    for step in trail:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{_cut(step)}" if path else _cut(step)
    return path


def kind_of(value: object) -> str:
    """Name the type of a value of a document as JSON does."""
    return _KINDS.get(type(value), "an object")


def name_in(value: object) -> str:
    """Return the path or the name of an entry of a list, "" if it has none. An author knows it, and counts no index."""
    name = (value.get("path") or value.get("name")) if isinstance(value, dict) else None
    return name if isinstance(name, str) else ""


def similar(key: str, names: Collection[str], cutoff: float = 0.75) -> str:
    """The end of a message about the unknown ``key``: the one of ``names`` that was probably meant, if any."""
    if not names:
        return ""
    close = get_close_matches(key[:MAX_QUOTED], sorted(names), 1, cutoff)
    return f"; did you mean {close[0]}?" if close else ""


def _order(problem: Problem) -> tuple[str, str]:
    # Padded, so that files[2] comes before files[10].
    return _DIGITS.sub(lambda digits: digits[0].rjust(12, "0"), problem.path), problem.message


def _few(shape: tuple[str, str], group: list[Problem]) -> list[Problem]:
    more = len(group) - MAX_ALIKE
    # A note in place of a single problem would save no line.
    if more <= 1:
        return group
    path, message = shape
    return [*group[:MAX_ALIKE], Problem(path, f"{message}: {more} more like these")]


def first_of(problems: Sequence[Problem], count: int) -> str:
    """Return the first problem, and the number of the others, of ``count`` in all."""
    first = f"{problems[0].path}: {problems[0].message}" if problems[0].path else problems[0].message
    return f"{first} (and {count - 1} more)" if count > 1 else first


class Problems:
    """A bounded collection; ``check`` raises ``InvalidInput`` if it is not empty."""

    def __init__(self) -> None:
        self._found: list[tuple[Problem, str]] = []
        self._dropped = 0
        # Their values count as absent, so that a reader would report them again.
        self._mistyped: set[str] = set()

    def __len__(self) -> int:
        return len(self._found) + self._dropped

    def add(self, path: str, message: str, about: str = "") -> None:
        """``about`` is the name of the entry that an index in ``path`` refers to."""
        if self._mistyped and self._is_mistyped(path):
            return
        if len(self._found) < MAX_KEPT:
            self._found.append((Problem(path, message), about))
        else:
            self._dropped += 1

    def add_mistyped(self, path: str, message: str, about: str = "") -> None:
        """Add the problem of a value of a wrong type, which is the only one of its path from now on."""
        self.add(path, message, about)
        if len(self._mistyped) < MAX_KEPT:
            self._mistyped.add(path)

    def _is_mistyped(self, path: str) -> bool:
        """Return whether the value at ``path``, or one that it is in, has a wrong type."""
        while path and path not in self._mistyped:
            path = path.rpartition(".")[0]
        return bool(path)

    def listed(self) -> tuple[Problem, ...]:
        """Return the problems sorted by path, without repetitions, and of many alike the first ones and their number.

        At most ``MAX_SHOWN``, followed by an entry with the number of the remaining ones.
        """
        groups: dict[tuple[str, str], list[Problem]] = {}
        patterns: dict[str, str] = {}
        for problem, about in sorted(set(self._found), key=lambda entry: _order(entry[0])):
            named = f"{problem.message} ({about})" if about and about not in problem.message else problem.message
            pattern = _DIGITS.sub("*", problem.path)
            # One string for all of them: paths are long, and each of ten thousand messages may name another column.
            shape = patterns.setdefault(pattern, pattern), problem.message
            groups.setdefault(shape, []).append(Problem(problem.path, named))
        ordered = sorted(
            (_order(group[number]), problem)
            for shape, group in groups.items()
            for number, problem in enumerate(_few(shape, group))
        )
        more = len(ordered) + self._dropped - MAX_SHOWN
        listed = tuple(problem for _, problem in ordered[:MAX_SHOWN])
        return (*listed, Problem("", f"{more} more problems are not shown")) if more > 0 else listed

    def check(self, what: str) -> None:
        """Raise ``InvalidInput`` about ``what`` (a file name, "the desired config") if there are problems."""
        if not self._found:
            return
        listed = self.listed()
        raise InvalidInput(f"{what} is invalid: {first_of(listed, len(self))}", problems=listed)


class Location:
    """A place in a document, where problems are reported.

    ``about`` is the name of the entry that an index in ``path`` refers to, such as the path of a file.
    """

    __slots__ = ("about", "path", "problems")

    def __init__(self, problems: Problems, path: str = "", about: str | None = None) -> None:
        self.problems = problems
        self.path = path
        self.about = about

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path and key else self.path or key

    def bad(self, key: str, message: str) -> None:
        """Report a problem of the value of ``key``, or of the value at this location if ``key`` is empty."""
        self.problems.add(self.at(key), message, self._shown_about())

    def mistyped(self, key: str, message: str) -> None:
        """Report a value of a wrong type, as ``bad``."""
        self.problems.add_mistyped(self.at(key), message, self._shown_about())

    def _shown_about(self) -> str:
        about = self.about or ""
        return about if len(about) <= MAX_QUOTED and about.isprintable() else ""

    def child(self, key: str) -> Location:
        return Location(self.problems, self.at(key), self.about)

    def item(self, index: int, about: str | None = None) -> Location:
        return Location(self.problems, f"{self.path}[{index}]", self.about or about)
