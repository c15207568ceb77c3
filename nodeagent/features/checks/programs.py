# SPDX-License-Identifier: Apache-2.0
"""Checks of the admin in /etc/nodeagent/checks: find them, and run them as transient units of systemd.

A check needs the rights of a program of the host, which nodeagent.service drops. The unit of a check contains all of
its processes, so that none is left after the deadline. An entry with the name of a service is that service itself
(``units``).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from nodeagent.errors import Problem, Refused
from nodeagent.features.checks.decide import CHECKS, AdminCheck, CheckStage
from nodeagent.features.checks.reasons import CheckReason
from nodeagent.features.checks.units import run_check, run_check_unit, shown, unsafe_unit, writable
from nodeagent.host.clock import SystemClock
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.programs import NotStarted, ProgramLate, run_program
from nodeagent.update.ports.host import Clock

# Required checks run first.
FOLDERS: Final = (("required.d", True), ("wanted.d", False))

# The name becomes a part of the name of a unit, which has at most 255 characters.
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

# Checks of one stage. Each may take the time of the settings.
MAX_CHECKS: Final = 50

# Seconds after which systemd kills a check that nodeagent did not stop, because it was killed itself.
GRACE: Final = 30.0

# Seconds between SIGTERM and SIGKILL, and for one call of systemctl.
STOP: Final = 2
STOP_CALL: Final = 15.0


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
        unit = f"nodeagent-check-{check.stage}-{check.name}.service"
        # A check that runs again after a kill of the agent must not run beside itself.
        await self._stop(unit)
        arguments = self._arguments(check, unit, config)
        result = await run_check(check, "systemd-run", arguments, self.timeout, partial(self._stop, unit))
        if isinstance(result, str):
            return result
        status, lines = result
        return "" if status == 0 else f"the check {check.id} failed with exit status {status}{shown(lines)}"

    def _arguments(self, check: AdminCheck, unit: str, config: str) -> Sequence[str]:
        return (
            "--quiet",
            "--wait",
            "--pipe",
            "--collect",
            "--service-type=exec",
            f"--unit={unit}",
            f"--description=Check {check.id} of nodeagent",
            f"--property=RuntimeMaxSec={self.timeout + GRACE:.0f}",
            f"--property=TimeoutStopSec={STOP}",
            f"--setenv=NODEAGENT_STAGE={check.stage}",
            f"--setenv=NODEAGENT_CONFIG={config}",
            "--",
            check.path,
        )

    async def _stop(self, unit: str) -> None:
        """End the processes of a check. A unit that is not loaded is no error: systemctl reports it, with a status."""
        with contextlib.suppress(OSError, NotStarted, ProgramLate):
            await run_program("systemctl", ("stop", "--quiet", unit), Path("/"), STOP_CALL)


def _find(root: Path, stage: CheckStage) -> Sequence[AdminCheck]:
    directory = root / f"{stage}.d"
    checks: list[AdminCheck] = []
    problems: list[Problem] = []
    with translated("read", str(directory)):
        if not directory.exists():
            return ()
        for path in (root, directory):
            problems += _unsafe_directory(path)
        folders = dict(FOLDERS)
        problems += [
            Problem(str(path), "must be in required.d or in wanted.d")
            for path in _visible(directory)
            if path.name not in folders
        ]
        for name, required in FOLDERS:
            folder = directory / name
            if not folder.exists():
                continue
            problems += _unsafe_directory(folder)
            for path in _visible(folder):
                check = AdminCheck(stage, path.name, required, str(path))
                unsafe = unsafe_unit(path) if check.is_unit else _unsafe_program(path, directory)
                problems += [Problem(str(path), message) for message in unsafe]
                checks.append(check)
    if len(checks) > MAX_CHECKS:
        problems.append(Problem(str(directory), f"has {len(checks)} checks, more than {MAX_CHECKS}"))
    if problems:
        raise Refused(f"{problems[0].path} {problems[0].message}", reason=CheckReason.CHECK_UNSAFE, problems=problems)
    return tuple(checks)


def _visible(directory: Path) -> Iterator[Path]:
    """Yield the entries in the order of their names, without hidden ones and backups of editors."""
    for path in sorted(directory.iterdir()):
        if not path.name.startswith(".") and not path.name.endswith("~"):
            yield path


def _unsafe_directory(path: Path) -> Iterator[Problem]:
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode):
        yield Problem(str(path), "must be a directory, and no link")
    elif writable(about):
        yield Problem(str(path), "is writable for users other than root")


def _unsafe_program(path: Path, directory: Path) -> Iterator[str]:
    """Yield why a program is not run. A link may only point to a program of the same stage."""
    if NAME.fullmatch(path.name) is None:
        yield "has a name with other characters than letters, digits, dots, dashes and underscores"
    if path.is_symlink() and path.resolve().parent not in [directory.resolve() / name for name, _ in FOLDERS]:
        yield "is a link to a file outside of its directory"
        return
    try:
        about = path.stat()
    except FileNotFoundError:
        yield "is a link to no file"
        return
    if not stat.S_ISREG(about.st_mode):
        yield "is no regular file"
    elif writable(about):
        yield "is writable for users other than root"
    elif not about.st_mode & stat.S_IXUSR:
        yield "is not executable"
