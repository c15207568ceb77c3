"""Read from the journal whether a program took over its configuration at a reload.

CRI-O's reload is a signal: systemd's job succeeds as soon as the signal is sent, and an error is only logged.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nodeagent.core.plan.domain import ReloadProof
from nodeagent.host.checkers.job import ENVIRONMENT, CheckerLate, run_program

__all__ = ["read_result", "reload_problem"]

# Seconds for the message after the reload. CRI-O takes well under a second.
PATIENCE: Final = 10.0
PERIOD: Final = 0.3

# Characters of the program's message.
LONGEST: Final = 500

log = logging.getLogger(__name__)


async def reload_problem(proof: ReloadProof, since: float, program: str | None = None) -> str | None:
    """Return the program's error, "" if it took the configuration over, None if it logged neither.

    ``since`` is in seconds since the epoch. A program may log errors only, so None is no failure.
    """
    journalctl = program or await asyncio.to_thread(shutil.which, "journalctl", path=ENVIRONMENT["PATH"])
    if journalctl is None:
        return None
    unit = f"_SYSTEMD_UNIT={proof.unit}"
    arguments = ("--quiet", "--no-pager", "--boot", "--output=cat", f"--since=@{since:.3f}", unit)
    clock = asyncio.get_running_loop().time
    until = clock() + PATIENCE
    while True:
        try:
            status, lines = await run_program(journalctl, arguments, Path("/"), PATIENCE)
        except (OSError, CheckerLate) as error:
            log.warning("the journal of %s could not be read: %s", proof.unit, error)
            return None
        found = read_result(proof, lines) if status == 0 else None
        if found is not None or clock() >= until:
            return found
        await asyncio.sleep(PERIOD)


def read_result(proof: ReloadProof, lines: Sequence[str]) -> str | None:
    """Return the last result in ``lines``, as ``reload_problem`` does."""
    for line in reversed(lines):
        if proof.failed in line:
            return line[line.index(proof.failed) :].rstrip('"')[:LONGEST]
        if proof.done in line:
            return ""
    return None
