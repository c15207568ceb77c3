# SPDX-License-Identifier: Apache-2.0
"""Checks of changed files by the programs of this host that will read them, before anything is written.

A finding rejects the whole update, so a checker reports only errors that keep a changed file from working. Warnings,
the state of the host and errors in unchanged files do not count. A checker that is not installed does not reject an
update either. One that is installed must give a result, or nothing is written: the update waits while it cannot be
started, and is refused if it does not end.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig, coming_accounts
from nodeagent.core.plan.domain import Checker
from nodeagent.core.plan.program import SCRATCH, TREE, ProgramCheck, ProgramResult
from nodeagent.core.plan.sides import Sides
from nodeagent.domains import changed_contents, checker_of, host_problems, program_checks
from nodeagent.errors import InvalidInput, Problem, Terminal
from nodeagent.host.checkers import sshd, sudoers, units
from nodeagent.host.checkers.job import DEADLINE, Job, private_directory, result_of, waiting_for, write_files
from nodeagent.host.fs.owners import Owners
from nodeagent.host.view import read_view
from nodeagent.reasons import Reason

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
        """Raises ``NotStarted`` while a checker cannot be started, ``Refused`` (``CheckerLate``) without a result."""
        # In threads: with the most paths that a config may have, this takes some tenths of a second.
        wanted = await asyncio.to_thread(_by_checker, old, new)
        problems = [*await asyncio.to_thread(unknown, self.root, old, new)]
        for checker, changed in wanted.items():
            problems += await self._problems_of(checker, changed, old, new)
        view = await read_view(old, new, self.root)
        sides = Sides(old, new, view)
        problems += await asyncio.to_thread(host_problems, sides)
        changed = await asyncio.to_thread(changed_contents, old, new)
        for check in await asyncio.to_thread(program_checks, sides):
            problems += await run_check(check, self.root, self.search_path, changed.keys())
        # Two checks of one file may find the same problem.
        return tuple(sorted(set(problems)))

    async def _problems_of(
        self, checker: Checker, changed: Mapping[str, bytes], old: MachineConfig, new: MachineConfig
    ) -> tuple[Problem, ...]:
        program = await asyncio.to_thread(shutil.which, checker, path=self.search_path)
        if program is None:
            log.debug("%s is not on this host; %d changed files are not checked by it", checker, len(changed))
            return ()
        with waiting_for(program):
            async with private_directory() as directory:
                job = Job(program, changed, old, new, self.root, directory, self.deadline)
                return await PROGRAMS[checker](job)


def _by_checker(old: MachineConfig, new: MachineConfig) -> dict[Checker, dict[str, bytes]]:
    """Return the changed files that a program of the host checks, by program."""
    wanted: dict[Checker, dict[str, bytes]] = {}
    for path, content in changed_contents(old, new).items():
        if (checker := checker_of(path)) is not None:
            wanted.setdefault(checker, {})[path] = content
    return wanted


async def run_check(
    check: ProgramCheck, root: Path, search_path: str, changed: Collection[str] = frozenset()
) -> tuple[Problem, ...]:
    """Return the problems that ``check`` finds. A program that is not installed finds none.

    ``changed`` are the paths that the update changes. Raises as ``HostValidator.check``.
    """
    program = await asyncio.to_thread(_installed, check.program, root, search_path)
    if program is None:
        log.debug("%s is not on this host, so it checks nothing", check.program)
        return ()
    paths = check.tree.keys() & changed or check.tree.keys()
    with waiting_for(program):
        problems = await _problems(check, program, paths)
        if problems and check.control is not None:
            problems -= await _problems(check.control, program, paths)
            if not problems:
                log.warning("%s finds the same problems in the files of this host; they do not count", check.program)
    return tuple(sorted(problems))


def _installed(program: str, root: Path, search_path: str) -> str | None:
    # A program of the root of a test is run as it is; on a host the root is /.
    place = str(root / program.lstrip("/")) if program.startswith("/") else program
    return shutil.which(place, path=search_path)


async def _problems(check: ProgramCheck, program: str, paths: Collection[str]) -> set[Problem]:
    async with private_directory() as directory:
        tree, scratch = directory / "tree", directory / "scratch"
        await asyncio.to_thread(scratch.mkdir, 0o700)
        await write_files(tree, {_relative(path): content for path, content in check.tree.items()})
        arguments = [word.replace(TREE, str(tree)).replace(SCRATCH, str(scratch)) for word in check.arguments]
        status, lines = await result_of(program, arguments, directory, check.deadline, paths)
        return set(check.judge(ProgramResult(status, [line.replace(str(tree), "") for line in lines])))


def _relative(path: str) -> str:
    """Return the path below the tree. Raises ``InvalidInput`` for a path that would leave the tree."""
    parts = PurePosixPath(path).parts
    if not path.startswith("/") or ".." in parts:
        raise InvalidInput(f"{path} is not an absolute path", reason=Reason.BAD_PATH)
    return "/".join(parts[1:])


def unknown(root: Path, old: MachineConfig, new: MachineConfig) -> tuple[Problem, ...]:
    """Return one problem for each changed path, with its first unknown account. Blocking: reads the account files."""
    owners = Owners(str(root))
    had = expand(old)
    coming = coming_accounts(new)
    # A config may have ten thousand files of one owner, so each account is resolved once.
    problems: dict[tuple[str, int | str], str] = {}

    def problem_of(kind: str, name: int | str | None, find: Callable[[int | str], int]) -> str:
        # The update creates it before it writes a path.
        if name is None or name in coming:
            return ""
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
