# SPDX-License-Identifier: Apache-2.0
"""Checks of the admin in /etc/nodeagent/checks: find them, and run them as transient units of systemd.

An entry with the name of a service is that service itself (``units``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nodeagent.errors import Problem, Refused
from nodeagent.features.checks.decide import CHECKS, AdminCheck, CheckStage
from nodeagent.features.checks.reasons import CheckReason
from nodeagent.features.checks.units import run_check_unit, unsafe_unit
from nodeagent.host.admin_programs import TransientProgram, unsafe_directory, unsafe_program, visible
from nodeagent.host.clock import SystemClock
from nodeagent.host.fs.os_errors import translated
from nodeagent.update.ports.host import Clock

# Required checks run first.
FOLDERS: Final = (("required.d", True), ("wanted.d", False))

# Checks of one stage. Each may take the time of the settings.
MAX_CHECKS: Final = 50


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
