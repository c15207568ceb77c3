# SPDX-License-Identifier: Apache-2.0
"""Checks of a candidate configuration by the program that will read it, as data.

The program runs over a private copy of the whole tree as it will be, because files that the update leaves alone are
part of what the program reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodeagent.errors import Problem

# In arguments: the directory that holds the candidate tree, as in ``{tree}/etc/x.conf``.
TREE = "{tree}"

# In arguments: an empty directory into which the program may write.
SCRATCH = "{scratch}"


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """The end of a program: its exit status, and the lines of both outputs, with host paths in place of the copies."""

    status: int
    lines: Sequence[str] = field(repr=False)


def rejection(program: str, path: str, result: ProgramResult) -> Iterator[Problem]:
    """Yield the last line of ``program``, which names no path, as a problem of ``path``, if it has failed."""
    if result.status != 0:
        lines = [line for line in result.lines if line.strip()]
        reason = lines[-1] if lines else f"status {result.status}"
        yield Problem(path, f"{program} rejects the configuration: {reason}")


@dataclass(frozen=True, slots=True)
class ProgramCheck:
    """A run of ``program``, an absolute path or a name in the search path, over ``tree`` (host path to content).

    ``judge`` returns the problems of the result; messages never quote content that may be secret. The check is skipped
    if the program is not installed. A program that does not end within ``deadline`` seconds, or in twice that, gives no
    result, and the update is refused. If ``judge`` finds a problem and there is a ``control``, usually the same run
    over the old tree, problems that its result has too are no finding: they belong to the host or to the check, not to
    the update.
    """

    program: str
    arguments: tuple[str, ...]
    tree: Mapping[str, bytes] = field(repr=False)
    judge: Callable[[ProgramResult], Iterable[Problem]]
    deadline: float = 10.0
    control: ProgramCheck | None = None
