"""The checks that domains declare: a program of the host over a private copy of the tree as it will be."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path, PurePosixPath

from nodeagent.core.plan.program import SCRATCH, TREE, ProgramCheck, ProgramResult
from nodeagent.errors import Problem
from nodeagent.host.checkers.job import CheckerLate, private_directory, run_program, write_files

__all__ = ["run_check"]

log = logging.getLogger(__name__)


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
