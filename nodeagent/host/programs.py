# SPDX-License-Identifier: Apache-2.0
"""Start a program of the host. The only module of the daemon that does, so that each caller has the same three ends.

- The program ran: its exit status and its output.
- ``NotStarted``: no process, memory or descriptor was free, which says nothing about what the program was to do. It is
  an outage: an update waits, and starts the program again.
- ``ProgramLate``: it ran, did not end within its deadline, and was killed. The caller knows what that means.

A program that is missing, or cannot be executed, is an ``OSError`` as usual.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path, PurePath
from typing import Final

from nodeagent.errors import ServiceUnavailable
from nodeagent.reasons import Reason

# Bytes. The first lines of the output contain the errors.
MAX_OUTPUT: Final = 64 * 1024

# The environment of the agent is not inherited: the package sets library paths that are wrong for programs of the host.
ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"}

# What the host lacks for a moment: processes, memory, descriptors, pages of a file that is being replaced.
PASSING: Final = frozenset(
    {
        errno.EAGAIN,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.EINTR,
        errno.ETXTBSY,
        errno.EBUSY,
        errno.ESTALE,
        errno.EIO,
    }
)


class ProgramLate(Exception):
    """The program did not end within the deadline and was killed."""


class NotStarted(ServiceUnavailable):
    """The program could not be started, or what it needs could not be prepared."""

    default_reason = Reason.PROGRAM_NOT_STARTED

    def __init__(self, program: str, cause: str) -> None:
        name = PurePath(program).name
        super().__init__(f"{name} cannot be started: {cause}", service=name)


@contextmanager
def starting(program: str) -> Iterator[None]:
    """Translate a lack of processes, memory or descriptors within the block, which starts ``program``."""
    try:
        yield
    except OSError as error:
        if error.errno not in PASSING:
            raise
        raise NotStarted(program, os.strerror(error.errno or 0)) from error
    except MemoryError as error:
        raise NotStarted(program, os.strerror(errno.ENOMEM)) from error
    except RuntimeError as error:
        # Python's message for a thread that cannot be started. asyncio waits for a child in one.
        if "start new thread" not in str(error):
            raise
        raise NotStarted(program, os.strerror(errno.EAGAIN)) from error


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

    Raises ``NotStarted``, ``ProgramLate`` or ``OSError``.
    """
    async with _pipe(program) as (reader, writer):
        try:
            with starting(program):
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
            raise ProgramLate(f"no end within {deadline:.0f} s") from None
        finally:
            # A cancelled update leaves no process behind, and no child of one.
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    return status, output.decode(errors="replace").splitlines()


@asynccontextmanager
async def _pipe(program: str) -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """Open a pipe. A pipe of asyncio's would make ``wait`` wait for each descendant that has inherited it."""
    with starting(program):
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
