# SPDX-License-Identifier: Apache-2.0
"""Check units and drop-ins with ``systemd-analyze verify``.

It gets names of units, and a private directory before those of the host in its search path, so that a drop-in is
checked together with its unit of the OS. Of its output (the same in 252 and 257), only the verdict that a unit cannot
be loaded refuses a config. Lines that systemd ignores are warnings, because a config may also be meant for the next OS,
whose systemd knows more. These do not count: missing programs, because the same config may bring them; missing units,
because a drop-in for a service that this host lacks does no harm. A timer that never elapses is a warning as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from nodeagent.core.config.file_tree import DEV_NULL, RegularFile, SymbolicLink, expand
from nodeagent.core.config.paths import UNIT_DIR
from nodeagent.core.config.unit_names import unit_name_problem
from nodeagent.core.plan.domain import Checker
from nodeagent.core.validate.unit_file import assignments
from nodeagent.domains import checker_of
from nodeagent.errors import Problem
from nodeagent.host.checkers.job import Job

# Units in one run, far below the limit of an argument list.
BATCH: Final = 100
OPTIONS: Final = ("verify", "--man=no", "--generators=no")

CANNOT_LOAD: Final = re.compile(r"Unit (\S+) (?:has a bad unit file setting\.|failed to load properly, .*)")
LOCATED: Final = re.compile(r"(?P<path>/.+?):(?P<line>[0-9]+): (?P<text>.*)")
# Where a text has the value of a key.
VALUE: Final = re.compile(r"ignoring: .*", re.DOTALL)
QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
# Verdicts without a reason; another line has it.
VERDICTS: Final = ("Unit configuration has fatal error, unit will not be started.",)


def unit_of(path: str) -> str:
    """Return the unit to which a path below the unit directory belongs."""
    name = path.removeprefix(f"{UNIT_DIR}/")
    return name.split("/")[0].removesuffix(".d") if "/" in name else name


async def check(job: Job) -> tuple[Problem, ...]:
    names = sorted({unit_of(path) for path in job.changed})
    await job.write(
        {
            path.removeprefix(f"{UNIT_DIR}/"): node.content if isinstance(node, RegularFile) else b""
            for path, node in expand(job.new).items()
            # An empty file masks a unit as a link to /dev/null does.
            if checker_of(path) is Checker.SYSTEMD_ANALYZE
            and unit_of(path) in names
            and (isinstance(node, RegularFile) or (isinstance(node, SymbolicLink) and node.target == DEV_NULL))
        }
    )
    # Drop-ins for a type (service.d) or a prefix (foo-.service.d) have no unit of their own.
    names = [name for name in names if unit_name_problem(name) is None and not name.rpartition(".")[0].endswith("-")]
    problems: list[Problem] = []
    for start in range(0, len(names), BATCH):
        _, lines = await job.run(
            *OPTIONS,
            *names[start : start + BATCH],
            environment={"SYSTEMD_UNIT_PATH": f"{job.directory}:", "SYSTEMD_LOG_TARGET": "console"},
        )
        for unit, path, text in verdicts(lines, str(job.directory)):
            problems.append(Problem(path or _blamed(unit, job.changed), text))
        # A line that is ignored may be the reason for a refusal, which has it.
        ok = job.changed.keys() - {problem.path for problem in problems}
        problems += ignored(lines, str(job.directory), ok)
    return (*problems, *await _past(job))


def ignored(lines: Sequence[str], directory: str, changed: Iterable[str]) -> Iterator[Problem]:
    """Yield a warning for each line of the ``changed`` files that systemd ignores."""
    paths = frozenset(changed)
    for line in dict.fromkeys(lines):
        located = LOCATED.fullmatch(line)
        if located is None or "ignoring" not in located["text"].lower():
            continue
        path = UNIT_DIR + located["path"].removeprefix(directory)
        text = located["text"]
        # Of a known key, the text has the value.
        if not text.startswith("Unknown "):
            text = QUOTED.sub("(not shown)", VALUE.sub("ignoring", text))
        if path in paths:
            yield Problem(path, f"line {located['line']}: {text}", warning=True)


async def _past(job: Job) -> Sequence[Problem]:
    """Return a warning for each time of a changed timer that never comes."""
    times = {path: _calendar(content) for path, content in job.changed.items() if unit_of(path).endswith(".timer")}
    wanted = sorted({time for own_times in times.values() for time in own_times})
    never: set[str] = set()
    for start in range(0, len(wanted), BATCH):
        _, lines = await job.run("calendar", "--iterations=1", "--", *wanted[start : start + BATCH])
        never |= set(never_elapsing(lines))
    return [
        Problem(path, f"OnCalendar={time} is in the past: it never elapses", warning=True)
        for path, own_times in times.items()
        for time in own_times
        if time in never
    ]


def _calendar(content: bytes) -> Sequence[str]:
    """Return the times of a timer or of its drop-in, without those that an empty assignment resets."""
    times: list[str] = []
    for section, key, value in assignments(content.decode(errors="replace")):
        if (section, key) == ("Timer", "OnCalendar"):
            times = [*times, value] if value else []
    return [time for time in times if "%" not in time]


def never_elapsing(lines: Iterable[str]) -> Iterator[str]:
    """Yield the expressions without a next time, of the output of ``systemd-analyze calendar``."""
    form = ""
    for line in lines:
        name, _, text = line.strip().partition(": ")
        if name == "Original form" or (name == "Normalized form" and not form):
            form = text.strip()
        elif name == "Next elapse":
            if text.strip() == "never":
                yield form
            form = ""


def verdicts(lines: Sequence[str], directory: str) -> Iterator[tuple[str, str, str]]:
    """Yield unit, host path ("" if the output names none) and reason of each unit that cannot be loaded."""
    for unit in dict.fromkeys(refusal[1] for line in lines if (refusal := CANNOT_LOAD.fullmatch(line))):
        yield unit, *_reason(unit, lines, directory)


def _reason(unit: str, lines: Sequence[str], directory: str) -> tuple[str, str]:
    """Return the path and the text of the line with the reason."""
    # An ignored line may be the cause of a missing setting later on. It is reported if nothing better is found.
    conclusion, ignored = "", None
    for line in lines:
        if line.startswith(f"{unit}: "):
            verdict = line.removeprefix(f"{unit}: ")
            conclusion = conclusion or ("" if verdict in VERDICTS else verdict.removesuffix(" Refusing."))
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
    """Return the changed path of ``unit`` if systemd names none: the unit file, or its first drop-in."""
    own = sorted(path for path in changed if unit_of(path) == unit)
    return next((path for path in own if path == f"{UNIT_DIR}/{unit}"), own[0] if own else f"{UNIT_DIR}/{unit}")
