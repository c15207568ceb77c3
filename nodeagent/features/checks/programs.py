# SPDX-License-Identifier: Apache-2.0
"""Checks of the admin in /etc/nodeagent/checks: find them, and run them as transient units of systemd.

An entry with the name of a service is that service itself: a link to the unit, as in the ``.wants`` directories of
systemd, or an empty file, which a MachineConfig can bring. Only its name counts: systemd has the unit, and its file
belongs to root. The start of a service of the type ``oneshot`` ends with its program, so that its exit status is the
result. Any other service passes when it is up. A service that is up already is restarted: its last result is old.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from nodeagent.errors import Problem, Refused
from nodeagent.features.checks.decide import CHECKS, AdminCheck, CheckStage
from nodeagent.features.checks.reasons import CheckReason
from nodeagent.host.admin_programs import (
    TransientProgram,
    run_to_its_end,
    shown,
    unsafe_directory,
    unsafe_program,
    visible,
    writable,
)
from nodeagent.host.clock import SystemClock
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.programs import NotStarted, ProgramLate, run_program
from nodeagent.update.ports.host import Clock

# Required checks run first.
FOLDERS: Final = (("required.d", True), ("wanted.d", False))

# Checks of one stage. Each may take the time of the settings.
MAX_CHECKS: Final = 50

UNIT_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,127}\.service")

# Lines of the journal that are read, and seconds for one call of systemctl or journalctl.
LINES: Final = 20
CALL: Final = 15.0

# journald may have the last lines a moment after systemd has the end of the program.
TRIES: Final = 3
PAUSE: Final = 0.2


@dataclass(slots=True)
class HostAdminChecks:
    """Implements ``guard.AdminChecks``. ``timeout`` is the longest time for one check, in seconds.

    ``root`` is the directory of the stages, whose owner must be root or this user.
    """

    timeout: float
    root: Path = Path(CHECKS)
    clock: Clock = field(default_factory=SystemClock)

    def use(self, timeout: float) -> None:
        self.timeout = timeout

    async def found(self, stage: CheckStage) -> Sequence[AdminCheck]:
        return await asyncio.to_thread(_find, self.root, stage)

    async def run(self, check: AdminCheck, config: str) -> str:
        if check.is_unit:
            return await run_check_unit(check, self.timeout, self.clock)
        program = TransientProgram(
            f"the check {check.id}",
            check.path,
            f"nodeagent-check-{check.stage}-{check.name}.service",
            f"Check {check.id} of nodeagent",
            self.timeout,
            {"NODEAGENT_STAGE": check.stage, "NODEAGENT_CONFIG": config},
        )
        return await program.run()


def _find(root: Path, stage: CheckStage) -> Sequence[AdminCheck]:
    directory = root / f"{stage}.d"
    checks: list[AdminCheck] = []
    problems: list[Problem] = []
    with translated("read", str(directory)):
        if not directory.exists():
            return ()
        for path in (root, directory):
            problems += unsafe_directory(path)
        folders = dict(FOLDERS)
        problems += [
            Problem(str(path), "must be in required.d or in wanted.d")
            for path in visible(directory)
            if path.name not in folders
        ]
        for name, required in FOLDERS:
            folder = directory / name
            if not folder.exists():
                continue
            problems += unsafe_directory(folder)
            for path in visible(folder):
                check = AdminCheck(stage, path.name, required, str(path))
                unsafe = (
                    unsafe_unit(path)
                    if check.is_unit
                    else unsafe_program(path, [directory / each for each, _ in FOLDERS])
                )
                problems += [Problem(str(path), message) for message in unsafe]
                checks.append(check)
    if len(checks) > MAX_CHECKS:
        problems.append(Problem(str(directory), f"has {len(checks)} checks, more than {MAX_CHECKS}"))
    if problems:
        raise Refused(f"{problems[0].path} {problems[0].message}", reason=CheckReason.CHECK_UNSAFE, problems=problems)
    return tuple(checks)


async def run_check_unit(check: AdminCheck, deadline: float, clock: Clock) -> str:
    """Return why the service failed, with the end of its output, or "" if it passed. ``deadline`` in seconds."""
    unit = check.name
    since = datetime.fromisoformat(clock.now()).timestamp()
    restart = ("restart", "--quiet", "--", unit)
    result = await run_to_its_end(f"the check {check.id}", "systemctl", restart, deadline, partial(_end, unit))
    if isinstance(result, str):
        return result
    status, lines = result
    if status == 0:
        return ""
    output = await _output(unit, since) or lines
    # The failure is reported here. Left behind, it would look like a service that the update broke.
    await _call("systemctl", "reset-failed", "--quiet", "--", unit)
    return f"the check {check.id} failed{shown(output)}"


async def _end(unit: str) -> None:
    await _call("systemctl", "stop", "--quiet", "--", unit)
    await _call("systemctl", "reset-failed", "--quiet", "--", unit)


async def _output(unit: str, since: float) -> Sequence[str]:
    """Return the last lines of the service in the journal, none if it wrote none. ``since`` is in epoch seconds."""
    # journald does not know the invocation of a program that ended before it read the message, but always the unit.
    only = (f"--since=@{since:.3f}", f"_SYSTEMD_UNIT={unit}")
    options = ("--quiet", "--no-pager", "--boot", "--output=cat", f"--lines={LINES}", *only)
    for _ in range(TRIES):
        if lines := await _call("journalctl", *options):
            return lines
        await asyncio.sleep(PAUSE)
    return ()


async def _call(program: str, *arguments: str) -> Sequence[str]:
    """Return the lines of the output, none if the program failed or did not end in time."""
    with contextlib.suppress(OSError, NotStarted, ProgramLate):
        status, lines = await run_program(program, arguments, Path("/"), CALL)
        return lines if status == 0 else ()
    return ()


def unsafe_unit(path: Path) -> Iterator[str]:
    """Yield why an entry names no unit."""
    if UNIT_NAME.fullmatch(path.name) is None:
        yield "has a name that no service has"
    # One of them would end the agent, and another waits for the end of the update.
    if path.name.startswith("nodeagent"):
        yield "is a service of nodeagent"
    about = path.lstat()
    if stat.S_ISLNK(about.st_mode):
        template = re.sub("@.*[.]", "@.", path.name)
        if path.readlink().name not in (path.name, template):
            yield "is a link to a unit of another name"
    elif not stat.S_ISREG(about.st_mode):
        yield "is no regular file"
    elif writable(about):
        yield "is writable for users other than root"
    elif about.st_size:
        # A unit file, or a program, that would never be read.
        yield "must be empty, or a link to the unit of this name"
