"""One run of a checker: the files to check, the working directory and the process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig

# Seconds. Each of these programs takes well under one second; an overloaded host may need more.
DEADLINE: Final = 30.0

# Bytes. The first lines of the output contain the errors.
MAX_OUTPUT: Final = 64 * 1024

# The environment of the agent is not inherited: the package sets library paths that are wrong for programs of the host.
ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"}

# Directories in memory, in order of preference. The files that are checked may be secret and must not reach a disk.
TMPFS: Final = (Path("/run/nodeagent"), Path("/run"), Path("/dev/shm"))  # noqa: S108 - mkdtemp makes a private one


class CheckerLate(Exception):
    """The program did not end within the deadline and was killed."""


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

    async def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, Sequence[str]]:
        """Run the program as ``run_program`` does."""
        return await run_program(self.program, arguments, self.directory, self.deadline, environment)


async def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write ``files``, whose keys are paths relative to ``directory``."""

    def fill() -> None:
        for name, content in files.items():
            path = directory / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(0o600)
            path.write_bytes(content)

    await asyncio.to_thread(fill)


async def run_program(
    program: str,
    arguments: Sequence[str],
    directory: Path,
    deadline: float,
    environment: Mapping[str, str] | None = None,
    *,
    stdin: bytes = b"",
) -> tuple[int, Sequence[str]]:
    """Return the exit status and the lines of both outputs, up to ``MAX_OUTPUT``. ``stdin`` must fit into a pipe.

    Raises ``CheckerLate`` or ``OSError``.
    """
    async with _pipe() as (reader, writer):
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *arguments,
                stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                cwd=directory,
                env={**ENVIRONMENT, **(environment or {})},
                start_new_session=True,
            )
        finally:
            os.close(writer)
        if process.stdin is not None:
            process.stdin.write(stdin)
            process.stdin.close()
        try:
            async with asyncio.timeout(deadline):
                output = await _bounded(reader)
                status = await process.wait()
        except TimeoutError:
            raise CheckerLate(f"no end within {deadline:.0f} s") from None
        finally:
            # A cancelled update leaves no process behind, and no child of one.
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    return status, output.decode(errors="replace").splitlines()


@asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """Open a pipe. A pipe of asyncio's would make ``wait`` wait for each descendant that has inherited it."""
    readable, writable = os.pipe()
    reader = asyncio.StreamReader()
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(readable, "rb", 0)
        )
    except BaseException:
        os.close(writable)
        raise
    try:
        yield reader, writable
    finally:
        transport.close()


async def _bounded(reader: asyncio.StreamReader) -> bytes:
    """Return the first ``MAX_OUTPUT`` bytes of the output."""
    output = b""
    # The rest is read and dropped: a process whose pipe is full would block until the deadline.
    while chunk := await reader.read(MAX_OUTPUT):
        output += chunk[: MAX_OUTPUT - len(output)]
    return output


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
