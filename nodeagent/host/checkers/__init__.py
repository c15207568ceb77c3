"""Checks of changed files by the programs of this host that will read them, before anything is written.

A finding refuses the whole update, so a checker only reports what keeps a file from working: not a warning, not the
state of the host it runs on, not an error in a file that the update does not touch. A checker that this host does not
have, or that does not come to an end, is no reason to refuse either.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.domain import Checker
from nodeagent.domains import changed_contents, checker_of
from nodeagent.errors import Problem
from nodeagent.host.checkers import owners, sshd, sudoers, units
from nodeagent.host.checkers.job import DEADLINE, CheckerLate, Job

__all__ = ["HostValidator"]

log = logging.getLogger(__name__)

SEARCH_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAMS: Final[Mapping[Checker, Callable[[Job], Awaitable[tuple[Problem, ...]]]]] = {
    Checker.SYSTEMD_ANALYZE: units.check,
    Checker.SSHD: sshd.check,
    Checker.VISUDO: sudoers.check,
}
TMPFS: Final = (Path("/run/nodeagent"), Path("/run"), Path("/dev/shm"))  # noqa: S108 - the directory made in it is ours


@dataclass(frozen=True, slots=True)
class HostValidator:
    """Fulfils ``ports.Validator``. ``search_path`` is where programs are looked for, ``root`` is where the files lie
    that the config does not bring, ``deadline`` is seconds for one program."""

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
        return tuple(sorted(set(found)))

    async def _one(
        self, checker: Checker, changed: Mapping[str, bytes], old: MachineConfig, new: MachineConfig
    ) -> tuple[Problem, ...]:
        program = await asyncio.to_thread(shutil.which, checker, path=self.search_path)
        if program is None:
            log.debug("%s is not on this host; %d changed files are not checked by it", checker, len(changed))
            return ()
        try:
            async with _private_directory() as directory:
                job = Job(program, changed, old, new, self.root, directory, self.deadline)
                return await PROGRAMS[checker](job)
        except (OSError, CheckerLate) as error:
            log.warning("%s could not check %d changed files: %s", checker, len(changed), error)
            return ()


@asynccontextmanager
async def _private_directory() -> AsyncIterator[Path]:
    """Readable by us alone, and in memory where there is such a place: these files may not be for everybody."""

    def make() -> Path:
        for place in TMPFS:
            try:
                return Path(tempfile.mkdtemp(prefix="nodeagent-check-", dir=place))
            except OSError:
                continue
        return Path(tempfile.mkdtemp(prefix="nodeagent-check-"))

    directory = await asyncio.to_thread(make)
    try:
        yield directory
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
