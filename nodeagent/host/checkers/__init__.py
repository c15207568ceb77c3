"""Checks of changed files by the programs of this host that will read them, before anything is written.

A finding rejects the whole update, so a checker reports only errors that keep a changed file from working. Warnings,
the state of the host and errors in unchanged files do not count. A checker that is not installed, or that does not end
within its deadline, does not reject an update either.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.domain import Checker
from nodeagent.core.plan.sides import Sides
from nodeagent.domains import changed_contents, checker_of, host_problems, program_checks
from nodeagent.errors import Problem
from nodeagent.host.checkers import owners, programs, sshd, sudoers, units
from nodeagent.host.checkers.job import DEADLINE, CheckerLate, Job, private_directory
from nodeagent.host.view import read_view

__all__ = ["HostValidator"]

log = logging.getLogger(__name__)

SEARCH_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAMS: Final[Mapping[Checker, Callable[[Job], Awaitable[tuple[Problem, ...]]]]] = {
    Checker.SYSTEMD_ANALYZE: units.check,
    Checker.SSHD: sshd.check,
    Checker.VISUDO: sudoers.check,
}


@dataclass(frozen=True, slots=True)
class HostValidator:
    """Implements ``ports.Validator``.

    ``search_path`` has the directories of the programs, ``root`` contains the files of the host that the config does
    not bring, ``deadline`` is the time of one program in seconds.
    """

    search_path: str = SEARCH_PATH
    root: Path = Path("/")
    deadline: float = DEADLINE

    async def check(self, old: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
        wanted: dict[Checker, dict[str, bytes]] = {}
        for path, content in changed_contents(old, new).items():
            if (checker := checker_of(path)) is not None:
                wanted.setdefault(checker, {})[path] = content
        found = [*await asyncio.to_thread(owners.unknown, self.root, old, new)]
        for checker, changed in wanted.items():
            found += await self._one(checker, changed, old, new)
        view = await read_view(old, new, self.root)
        sides = Sides(old, new, view)
        found += host_problems(sides)
        for check in program_checks(sides):
            found += await programs.run_check(check, self.root, self.search_path)
        return tuple(sorted(set(found)))

    async def _one(
        self, checker: Checker, changed: Mapping[str, bytes], old: MachineConfig, new: MachineConfig
    ) -> tuple[Problem, ...]:
        program = await asyncio.to_thread(shutil.which, checker, path=self.search_path)
        if program is None:
            log.debug("%s is not on this host; %d changed files are not checked by it", checker, len(changed))
            return ()
        try:
            async with private_directory() as directory:
                job = Job(program, changed, old, new, self.root, directory, self.deadline)
                return await PROGRAMS[checker](job)
        except (OSError, CheckerLate) as error:
            log.warning("%s could not check %d changed files: %s", checker, len(changed), error)
            return ()
