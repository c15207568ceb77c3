"""Reading what the user named on the command line: files, or ``-`` for standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from nodeagent.core.config.text.document import MAX_BYTES
from nodeagent.core.plan.policy import Policy, merge
from nodeagent.errors import InvalidInput, Problem

__all__ = ["STDIN", "Errors", "load_policy", "name_of", "read"]

STDIN = "-"

Value = TypeVar("Value")


def name_of(path: str) -> str:
    return "standard input" if path == STDIN else path


def read(path: str) -> bytes:
    """At most one byte more than any document may have, so that the reader can say that it is too large."""
    try:
        if path == STDIN:
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs a start-up more than this whole module
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidInput(f"cannot read {name_of(path)}: {why}", reason="CannotRead") from None


def load_policy(path: str | None) -> Policy:
    """The built-in policy with the entries of the file over it."""
    from nodeagent.domains import default_policy

    if path is None:
        return default_policy()
    from nodeagent.core.plan.policy_parse import parse_policy

    return merge(default_policy(), parse_policy(read(path), name_of(path)))


class Errors:
    """Collects the errors of several inputs: nobody likes to fix them one by one."""

    def __init__(self) -> None:
        self._found: list[InvalidInput] = []

    def collect(self, load: Callable[[], Value]) -> Value | None:
        try:
            return load()
        except InvalidInput as error:
            self._found.append(error)
            return None

    def check(self) -> None:
        """Raises what was collected, if anything was."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            problems = [p for error in self._found for p in error.problems or (Problem("", error.message),)]
            message = "; ".join(error.message for error in self._found)
            raise InvalidInput(message, reason=self._found[0].reason, problems=problems)
