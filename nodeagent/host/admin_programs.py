# SPDX-License-Identifier: Apache-2.0
"""Programs of the admin below /etc/nodeagent: which of them may run, and their run as a transient unit of systemd.

A program of the admin needs the rights of a program of the host, which nodeagent.service drops. Its unit contains all
of its processes, so that none is left after the deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nodeagent.core.redact import redact
from nodeagent.errors import Problem
from nodeagent.host.programs import NotStarted, ProgramLate, run_program

# The name becomes a part of the name of a unit, which has at most 255 characters.
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

# Characters of the output in a message. The end of the output contains the error.
MAX_SHOWN: Final = 400

# Seconds after which systemd kills a program that nodeagent did not stop, because it was killed itself.
GRACE: Final = 30.0

# Seconds between SIGTERM and SIGKILL, and for one call of systemctl.
STOP: Final = 2
STOP_CALL: Final = 15.0


@dataclass(frozen=True, slots=True)
class TransientProgram:
    """``about`` names it in messages. ``deadline`` is in seconds. ``stdin`` must fit into a pipe. ``properties`` are
    those of its unit, as in ``PrivateNetwork=yes``, beside the limits of time."""

    about: str
    path: str
    unit: str
    description: str
    deadline: float
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    arguments: Sequence[str] = ()
    properties: Sequence[str] = ()

    async def run(self) -> str:
        """Return why the program failed, with the end of its output, or "" if it did not.

        Raises ``NotStarted``, which is no failure of the program.
        """
        result = await self.result()
        if isinstance(result, str):
            return result
        status, lines = result
        return "" if status == 0 else f"{self.about} failed with exit status {status}{shown(lines)}"

    async def result(self) -> tuple[int, Sequence[str]] | str:
        """Return the exit status and the lines of both outputs, or why there are none. Raises as ``run``."""
        # One that runs again after a kill of the agent must not run beside itself.
        await self._stop()
        return await run_to_its_end(
            self.about, "systemd-run", self._arguments(), self.deadline, self._stop, stdin=self.stdin
        )

    def _arguments(self) -> Sequence[str]:
        return (
            "--quiet",
            "--wait",
            "--pipe",
            "--collect",
            "--service-type=exec",
            f"--unit={self.unit}",
            f"--description={self.description}",
            f"--property=RuntimeMaxSec={self.deadline + GRACE:.0f}",
            f"--property=TimeoutStopSec={STOP}",
            *(f"--property={setting}" for setting in self.properties),
            *(f"--setenv={name}={value}" for name, value in self.environment.items()),
            "--",
            self.path,
            *self.arguments,
        )

    async def _stop(self) -> None:
        """End the processes. A unit that is not loaded is no error: systemctl reports it, with a status."""
        with contextlib.suppress(OSError, NotStarted, ProgramLate):
            await run_program("systemctl", ("stop", "--quiet", self.unit), Path("/"), STOP_CALL)


async def run_to_its_end(
    about: str,
    program: str,
    arguments: Sequence[str],
    deadline: float,
    end: Callable[[], Awaitable[None]],
    *,
    stdin: bytes = b"",
) -> tuple[int, Sequence[str]] | str:
    """Return the exit status and the output of ``program``, or why it has none.

    Without an end of the program, also if the caller is cancelled, ``end`` ends the unit, which outlives the program.
    Raises ``NotStarted``.
    """
    ended = False
    try:
        result = await run_program(program, arguments, Path("/"), deadline, stdin=stdin)
        ended = True
    except NotStarted:
        ended = True
        raise
    except ProgramLate:
        return f"{about} did not end within {deadline:g} s"
    except FileNotFoundError:
        return f"{about} cannot run: this host has no {program}"
    except OSError as error:
        return f"{about} cannot run: {error.strerror or error}"
    finally:
        if not ended:
            await asyncio.shield(end())
    return result


def visible(directory: Path) -> Iterator[Path]:
    """Yield the entries in the order of their names, without hidden ones and backups of editors."""
    for path in sorted(directory.iterdir()):
        if not path.name.startswith(".") and not path.name.endswith("~"):
            yield path


def writable(about: os.stat_result) -> bool:
    """Return whether users other than root, or than this one, can write."""
    return about.st_uid not in (0, os.geteuid()) or bool(about.st_mode & 0o022)


def unsafe_directory(path: Path) -> Iterator[Problem]:
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode):
        yield Problem(str(path), "must be a directory, and no link")
    elif writable(about):
        yield Problem(str(path), "is writable for users other than root")


def unsafe_program(path: Path, folders: Collection[Path]) -> Iterator[str]:
    """Yield why a program is not run. A link may only point to a program in one of these folders."""
    if NAME.fullmatch(path.name) is None:
        yield "has a name with other characters than letters, digits, dots, dashes and underscores"
    if path.is_symlink() and path.resolve().parent not in [folder.resolve() for folder in folders]:
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


def shown(lines: Sequence[str]) -> str:
    """Return the end of the output. A secret is removed before the text is cut, because a part of it looks harmless."""
    text = "; ".join(line.strip() for line in redact("\n".join(lines)).splitlines() if line.strip())
    if not text:
        return ""
    return f": {text}" if len(text) <= MAX_SHOWN else f": …{text[-MAX_SHOWN:]}"
