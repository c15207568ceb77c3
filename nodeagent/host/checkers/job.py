"""One run of a checker: what to check, where, and the process itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.core.config.machineconfig import MachineConfig

__all__ = ["DEADLINE", "CheckerLate", "Job"]

DEADLINE: Final = 30.0
"""Seconds. All of these programs take well under one; a host in trouble may need more."""

MAX_OUTPUT: Final = 64 * 1024  # bytes; what is wrong stands at the beginning

ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"}
"""Nothing of ours: an agent from a bundle has library paths that are wrong for programs of the host."""


class CheckerLate(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Job:
    """``changed`` is host path to content. ``directory`` is ours to fill. Paths below ``root`` are the host's."""

    program: str
    changed: Mapping[str, bytes]
    old: MachineConfig
    new: MachineConfig
    root: Path
    directory: Path
    deadline: float

    async def write(self, files: Mapping[str, bytes]) -> None:
        """``files`` by path relative to ``directory``."""

        def fill() -> None:
            for name, content in files.items():
                path = self.directory / name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.touch(0o600)
                path.write_bytes(content)

        await asyncio.to_thread(fill)

    async def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, Sequence[str]]:
        """Exit status and the lines of both outputs, up to a bound. Raises ``CheckerLate``, ``OSError``."""
        process = await asyncio.create_subprocess_exec(
            self.program,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self.directory,
            env={**ENVIRONMENT, **(environment or {})},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(self.deadline):
                output = await _bounded(process)
                status = await process.wait()
        except TimeoutError:
            raise CheckerLate(f"no end within {self.deadline:.0f} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return status, output.decode(errors="replace").splitlines()


async def _bounded(process: asyncio.subprocess.Process) -> bytes:
    """The beginning of the output; the rest is read as well, or the process would wait for us for ever."""
    assert process.stdout is not None
    output = b""
    while chunk := await process.stdout.read(MAX_OUTPUT):
        output += chunk[: MAX_OUTPUT - len(output)]
    return output
