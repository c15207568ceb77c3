# SPDX-License-Identifier: Apache-2.0
"""What the adapters of deployments need of systemd, and the output of programs that may be missing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nodeagent.host.programs import ProgramLate, run_program
from nodeagent.update.ports.host import UnitState

_VERSION = re.compile(r"\bVersion: '?(\d{4})\.(\d+)")
# Seconds.
_VERSION_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class CommandTiming:
    """Timeouts of libostree's commands and units, in seconds."""

    # From a soft reboot to the end of ostree-boot-complete.service, which starts after sysinit.target.
    complete: float = 60.0

    # Starting or restarting a unit; systemd kills it after 90 seconds.
    restart: float = 120.0

    # Pause before something is tried again.
    retry_pause: float = 0.5

    # ``ostree admin lock-finalization``, which waits for the lock of the sysroot; a cleanup can hold it.
    unlock: float = 120.0

    # ``ostree admin deploy`` of a tree in the repository: hard links, a kernel and a few syncs of a whole file system,
    # each of which waits for all dirty data.
    redeploy: float = 900.0


class Services(Protocol):
    """The methods of systemd that are used here."""

    async def state(self, unit: str) -> UnitState: ...

    async def start(self, unit: str, deadline: float) -> None: ...

    async def restart(self, unit: str, deadline: float) -> object: ...

    async def stop(self, unit: str, deadline: float) -> None: ...


async def output_of(*command: str, deadline: float) -> Sequence[str]:
    """Return the lines that a program prints, none if it does not exist or takes longer than ``deadline`` seconds.

    Its exit status is ignored, because these are optional probes.
    """
    try:
        return (await run_program(command[0], command[1:], Path("/"), deadline))[1]
    except (OSError, ProgramLate):
        return ()


async def ostree_version() -> tuple[int, int]:
    """Return the version of libostree, (0, 0) if it is unknown."""
    output = await output_of("ostree", "--version", deadline=_VERSION_TIMEOUT)
    version = _VERSION.search("\n".join(output))
    return (int(version[1]), int(version[2])) if version else (0, 0)
