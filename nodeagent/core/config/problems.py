"""Collects all that is wrong with one input, so that it is reported at once and in a stable order.

Messages are for people who wrote the input: they may quote names and paths of it (``shown`` keeps that short and on
one line) and never content, hashes or URLs, which can hold secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from nodeagent.errors import InvalidInput, Problem

__all__ = ["MAX_QUOTED", "MAX_SHOWN", "Problems", "kind_of", "place", "shown"]

MAX_SHOWN: Final = 100  # more than a person reads; keeps an answer over D-Bus or in a terminal small
MAX_KEPT: Final = 10_000  # of a hostile input; beyond it we only count
MAX_QUOTED: Final = 100  # characters of the input in one message
MAX_ALIKE: Final = 3  # of those that differ in an index only: one wrong replacement makes a hundred of them

_DIGITS = re.compile(r"\d+")


def shown(text: str) -> str:
    """``text`` quoted, escaped and cut, for use inside a message."""
    return repr(text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…")


def place(trail: Iterable[str | int]) -> str:
    """The path of a value from the keys and indices that lead to it; long keys are cut."""
    path = ""
    for step in trail:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            key = step if len(step) <= MAX_QUOTED else step[:MAX_QUOTED] + "…"
            path += f".{key}" if path else key
    return path


def kind_of(value: object) -> str:
    """What a value of a document is, in the words of JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number with a fraction"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"


def _order(problem: Problem) -> tuple[str, str]:
    # Padded, so that files[2] comes before files[10].
    return _DIGITS.sub(lambda digits: digits[0].rjust(12, "0"), problem.path), problem.message


def _few(shape: tuple[str, str], group: list[Problem]) -> list[Problem]:
    more = len(group) - MAX_ALIKE
    if more <= 1:
        return group
    path, message = shape
    return [*group[:MAX_ALIKE], Problem(path, f"{message}: {more} more like these")]


class Problems:
    """A bounded bag of findings; ``check`` turns a non-empty one into ``InvalidInput``."""

    def __init__(self) -> None:
        self._found: list[tuple[Problem, str]] = []
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._found) + self._dropped

    def add(self, path: str, message: str, about: str = "") -> None:
        """``about`` says what an index in ``path`` stands for."""
        if len(self._found) < MAX_KEPT:
            self._found.append((Problem(path, message), about))
        else:
            self._dropped += 1

    def listed(self) -> tuple[Problem, ...]:
        """Sorted by path, without repetitions; of many that are alike the first and their number; at most ``MAX_SHOWN``
        and then one entry that says how many more."""
        groups: dict[tuple[str, str], list[Problem]] = {}
        patterns: dict[str, str] = {}
        for problem, about in sorted(set(self._found), key=lambda found: _order(found[0])):
            named = f"{problem.message} ({about})" if about and about not in problem.message else problem.message
            pattern = _DIGITS.sub("*", problem.path)
            # One text for all of them: a path is long, and ten thousand messages may each name another column.
            shape = patterns.setdefault(pattern, pattern), problem.message
            groups.setdefault(shape, []).append(Problem(problem.path, named))
        kept = sorted(
            (_order(group[min(number, MAX_ALIKE)]), problem)
            for shape, group in groups.items()
            for number, problem in enumerate(_few(shape, group))
        )
        more = len(kept) + self._dropped - MAX_SHOWN
        listed = tuple(problem for _, problem in kept[:MAX_SHOWN])
        return (*listed, Problem("", f"{more} more problems are not shown")) if more > 0 else listed

    def check(self, what: str) -> None:
        """Raises ``InvalidInput`` about ``what`` (a file name, "the desired config") if anything was found."""
        if not self._found:
            return
        listed = self.listed()
        more = len(self) - 1
        first = f"{listed[0].path}: {listed[0].message}" if listed[0].path else listed[0].message
        tail = f" (and {more} more)" if more else ""
        raise InvalidInput(f"{what} is invalid: {first}{tail}", problems=listed)
