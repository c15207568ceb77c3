# SPDX-License-Identifier: Apache-2.0
"""One run of a checker: the files to check, the working directory and the result that the program has to give."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.errors import Problem, Refused
from nodeagent.host.programs import NotStarted, ProgramLate, run_program
from nodeagent.reasons import Reason

# Seconds. Each of these programs takes well under one second; an overloaded host may need more.
DEADLINE: Final = 30.0

# The second try of a program that was late has this many times its deadline.
MORE_TIME: Final = 2

# Directories in memory, in order of preference. The files that are checked may be secret and must not reach a disk.
TMPFS: Final = (Path("/run/nodeagent"), Path("/run"), Path("/dev/shm"))  # noqa: S108 - mkdtemp makes a private one


def checker_late(program: str, cause: str, paths: Collection[str]) -> Refused:
    """Return the error of a checker that was started twice and gave no result: nothing is known about the files."""
    name = PurePath(program).name
    problems = [Problem(path, f"could not be checked by {name}: {cause}") for path in sorted(paths)]
    return Refused(f"{name} gave no result: {cause}", reason=Reason.CHECKER_LATE, problems=problems)


@dataclass(frozen=True, slots=True)
class Job:
    """The input of a checker.

    ``changed`` maps paths of the host to their new content. ``directory`` is an empty working directory. ``root``
    contains the files of the host.
    """

    program: str
    changed: Mapping[str, bytes]
    old: MachineConfig
    new: MachineConfig
    root: Path
    directory: Path
    deadline: float

    async def write(self, files: Mapping[str, bytes]) -> None:
        """Write ``files``, whose keys are paths relative to ``directory``."""
        await write_files(self.directory, files)

    async def run(
        self, *arguments: str, paths: Collection[str] = (), environment: Mapping[str, str] | None = None
    ) -> tuple[int, Sequence[str]]:
        """Run the program as ``result_of`` does. ``paths`` are those of the host that this run checks, if not all."""
        paths = paths or self.changed.keys()
        return await result_of(self.program, arguments, self.directory, self.deadline, paths, environment)


async def result_of(
    program: str,
    arguments: Sequence[str],
    directory: Path,
    deadline: float,
    paths: Collection[str],
    environment: Mapping[str, str] | None = None,
) -> tuple[int, Sequence[str]]:
    """Return the exit status and the output of a checker of ``paths``.

    A program that does not end, or that a signal ends, is run once more with more time. Raises ``NotStarted`` as long
    as it cannot be started, and ``Refused`` (``CheckerLate``) if it has no result after that.
    """
    cause = ""
    for seconds in (deadline, deadline * MORE_TIME):
        try:
            with waiting_for(program):
                status, lines = await run_program(program, arguments, directory, seconds, environment)
        except ProgramLate as error:
            cause = str(error)
            continue
        if status >= 0:
            return status, lines
        cause = f"it was ended by signal {-status}"
    raise checker_late(program, cause, paths)


@contextmanager
def waiting_for(program: str) -> Iterator[None]:
    """Raise ``NotStarted`` for each ``OSError`` of the block: what was not checked must not be written.

    A checker that is not installed is not run at all, so the error says nothing about the files.
    """
    try:
        yield
    except OSError as error:
        raise NotStarted(program, error.strerror or str(error)) from error


async def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write ``files``, whose keys are paths relative to ``directory``."""

    def fill() -> None:
        for name, content in files.items():
            path = directory / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(0o600)
            path.write_bytes(content)

    await asyncio.to_thread(fill)


@asynccontextmanager
async def private_directory() -> AsyncIterator[Path]:
    """Make a directory that only this user can read, in memory if possible, and remove it afterwards."""

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
