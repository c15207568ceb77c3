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
from pathlib import Path, PurePosixPath
from typing import Final

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.core.plan.domain import Checker
from nodeagent.core.plan.program import SCRATCH, TREE, ProgramCheck, ProgramResult
from nodeagent.core.plan.sides import Sides
from nodeagent.domains import changed_contents, checker_of, host_problems, program_checks
from nodeagent.errors import Problem, Terminal
from nodeagent.host.checkers import sshd, sudoers, units
from nodeagent.host.checkers.job import DEADLINE, CheckerLate, Job, private_directory, run_program, write_files
from nodeagent.host.fs.owners import Owners
from nodeagent.host.view import read_view

log = logging.getLogger(__name__)

# Without /usr/local: the program that checks is the one of the OS that will read the file.
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
        # In threads: with the most paths that a config may have, this takes some tenths of a second.
        wanted = await asyncio.to_thread(_by_checker, old, new)
        found = [*await asyncio.to_thread(unknown, self.root, old, new)]
        for checker, changed in wanted.items():
            found += await self._one(checker, changed, old, new)
        view = await read_view(old, new, self.root)
        sides = Sides(old, new, view)
        found += await asyncio.to_thread(host_problems, sides)
        for check in await asyncio.to_thread(program_checks, sides):
            found += await run_check(check, self.root, self.search_path)
        # Two checks of one file may find the same problem.
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


def _by_checker(old: MachineConfig, new: MachineConfig) -> dict[Checker, dict[str, bytes]]:
    """Return the changed files that a program of the host checks, by program."""
    wanted: dict[Checker, dict[str, bytes]] = {}
    for path, content in changed_contents(old, new).items():
        if (checker := checker_of(path)) is not None:
            wanted.setdefault(checker, {})[path] = content
    return wanted


async def run_check(check: ProgramCheck, root: Path, search_path: str) -> tuple[Problem, ...]:
    """Return the problems that ``check`` finds. A check that cannot be made finds none."""
    program = await asyncio.to_thread(_installed, check.program, root, search_path)
    if program is None:
        log.debug("%s is not on this host, so it checks nothing", check.program)
        return ()
    try:
        found = await _problems(check, program)
        if found and check.control is not None:
            found -= await _problems(check.control, program)
            if not found:
                log.warning("%s finds the same problems in the files of this host; they do not count", check.program)
    except (OSError, CheckerLate) as error:
        log.warning("%s could not check the new configuration: %s", check.program, error)
        return ()
    return tuple(sorted(found))


def _installed(program: str, root: Path, search_path: str) -> str | None:
    # A program of the root of a test is run as it is; on a host the root is /.
    place = str(root / program.lstrip("/")) if program.startswith("/") else program
    return shutil.which(place, path=search_path)


async def _problems(check: ProgramCheck, program: str) -> set[Problem]:
    async with private_directory() as directory:
        tree, scratch = directory / "tree", directory / "scratch"
        await asyncio.to_thread(scratch.mkdir, 0o700)
        await write_files(tree, {_relative(path): content for path, content in check.tree.items()})
        arguments = [word.replace(TREE, str(tree)).replace(SCRATCH, str(scratch)) for word in check.arguments]
        status, lines = await run_program(program, arguments, directory, check.deadline)
        return set(check.judge(ProgramResult(status, [line.replace(str(tree), "") for line in lines])))


def _relative(path: str) -> str:
    """Return the path below the tree. Raises ``OSError`` for one that would leave it."""
    parts = PurePosixPath(path).parts
    if not path.startswith("/") or ".." in parts:
        raise OSError(f"{path} is not an absolute path")
    return "/".join(parts[1:])


def unknown(root: Path, old: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
    """Return one problem for each changed path, with its first unknown account. Blocking: reads the account files."""
    owners = Owners(str(root))
    had = expand(old)
    # A config may have ten thousand files of one owner, so each account is resolved once.
    problems: dict[tuple[str, int | str], str] = {}

    def problem_of(kind: str, name: int | str, find: Callable[[int | str], int]) -> str:
        if (kind, name) not in problems:
            try:
                find(name)
                problems[kind, name] = ""
            except Terminal as error:
                problems[kind, name] = error.message
        return problems[kind, name]

    return tuple(
        Problem(path, problem)
        for path, node in expand(new).items()
        if had.get(path) != node
        if (problem := problem_of("user", node.user, owners.uid) or problem_of("group", node.group, owners.gid))
    )
