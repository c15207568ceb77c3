"""Units and drop-ins, by ``systemd-analyze verify``.

It is asked about unit names with our directory in front of the host's, so a drop-in is checked together with the unit
of the OS that it belongs to. Of what it prints (the same in 252 and 257) only the verdict that a unit cannot be loaded
counts. Not counted are: lines that systemd ignores, because a config may be meant for the next OS too, whose systemd
knows more; programs that are not there, because the same config may bring them; units that are not found, because a
drop-in for a service that this host lacks does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from nodeagent.core.config.file_tree import DEV_NULL, SymbolicLink, expand
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import unit_name_problem
from nodeagent.core.plan.domain import Checker
from nodeagent.domains import checker_of
from nodeagent.errors import Problem
from nodeagent.host.checkers.job import Job

__all__ = ["check", "unit_of", "verdicts"]

BATCH: Final = 100  # units in one run, far below any limit of an argument list
OPTIONS: Final = ("verify", "--man=no", "--generators=no")

CANNOT_LOAD: Final = re.compile(r"Unit (\S+) (?:has a bad unit file setting\.|failed to load properly, .*)")
LOCATED: Final = re.compile(r"(?P<path>/.+?):(?P<line>[0-9]+): (?P<text>.*)")
VERDICTS: Final = ("Unit configuration has fatal error, unit will not be started.",)  # that name no reason


def unit_of(path: str) -> str:
    """The unit that a path below the unit directory belongs to."""
    name = path.removeprefix(f"{UNIT_DIR}/")
    return name.split("/")[0].removesuffix(".d") if "/" in name else name


async def check(job: Job) -> tuple[Problem, ...]:
    names = sorted({unit_of(path) for path in job.changed})
    await job.write(
        {
            path.removeprefix(f"{UNIT_DIR}/"): b"" if isinstance(node, SymbolicLink) else node.content
            for path, node in expand(job.new).items()
            # An empty file masks a unit as a link to /dev/null does.
            if checker_of(path) is Checker.SYSTEMD_ANALYZE
            and unit_of(path) in names
            and (not isinstance(node, SymbolicLink) or node.target == DEV_NULL)
        }
    )
    # Drop-ins for a type (service.d) or a prefix (foo-.service.d) have no unit of their own.
    names = [name for name in names if unit_name_problem(name) is None and not name.rpartition(".")[0].endswith("-")]
    found: list[Problem] = []
    for start in range(0, len(names), BATCH):
        _, lines = await job.run(
            *OPTIONS,
            *names[start : start + BATCH],
            environment={"SYSTEMD_UNIT_PATH": f"{job.directory}:", "SYSTEMD_LOG_TARGET": "console"},
        )
        for unit, path, text in verdicts(lines, str(job.directory)):
            found.append(Problem(path or _blamed(unit, job.changed), text))
    return tuple(found)


def verdicts(lines: Sequence[str], directory: str) -> Iterator[tuple[str, str, str]]:
    """Unit, host path ("" if the output names none) and reason, for each unit that cannot be loaded."""
    for unit in dict.fromkeys(found[1] for line in lines if (found := CANNOT_LOAD.fullmatch(line))):
        yield unit, *_reason(unit, lines, directory)


def _reason(unit: str, lines: Sequence[str], directory: str) -> tuple[str, str]:
    """The line that says why. What systemd ignores may be why it then misses something, but comes last."""
    conclusion, ignored = "", None
    for line in lines:
        if line.startswith(f"{unit}: "):
            said = line.removeprefix(f"{unit}: ")
            conclusion = conclusion or ("" if said in VERDICTS else said.removesuffix(" Refusing."))
        elif (located := LOCATED.fullmatch(line)) and located["path"].startswith(f"{directory}/"):
            path = UNIT_DIR + located["path"].removeprefix(directory)
            text = f"line {located['line']}: {located['text']}"
            if unit_of(path) != unit:
                continue
            if "ignoring" not in text:
                return path, text
            ignored = ignored or (path, text)
    if conclusion:
        return "", conclusion
    return ignored or ("", "systemd cannot load it")


def _blamed(unit: str, changed: Iterable[str]) -> str:
    """The changed path of ``unit`` to name when systemd names none: the unit itself, or its first drop-in."""
    own = sorted(path for path in changed if unit_of(path) == unit)
    return next((path for path in own if path == f"{UNIT_DIR}/{unit}"), own[0] if own else f"{UNIT_DIR}/{unit}")
