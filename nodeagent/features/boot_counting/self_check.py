# SPDX-License-Identifier: Apache-2.0
"""The check of an installation: whether the boot loader counts boots."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from nodeagent.core.self_check import NotRead, SelfCheck, ok, skipped, unread
from nodeagent.features.boot_counting.counter import HostBootCounter
from nodeagent.features.boot_counting.decide import BootCounting, CountedBy, phrase
from nodeagent.features.boot_counting.settings import BootCountingSettings
from nodeagent.host.ostree.boot_order import BOOTED

BOOT_CHECK: Final = "boot.count"

_AS_ROOT: Final = "run it as root"
_REMEDY: Final = "install greenboot, or let the boot loader count in another way, if a bad kernel must be given up"


async def check_boots(settings: BootCountingSettings) -> SelfCheck:
    return boot_check(await read_counting(settings))


def boot_check(counting: BootCounting | NotRead) -> SelfCheck:
    # A host that does not count is installed correctly, so nothing here fails.
    if isinstance(counting, NotRead):
        return unread(BOOT_CHECK, counting)
    text = f"the boots of a new OS are {phrase(counting)}"
    return skipped(BOOT_CHECK, text, _REMEDY) if counting.by is CountedBy.NOTHING else ok(BOOT_CHECK, text)


async def read_counting(settings: BootCountingSettings, root: Path = Path("/")) -> BootCounting | NotRead:
    """Return whether the boot loader counts boots. Its configuration may be for root only."""
    if not await asyncio.to_thread((root / BOOTED).exists):
        return NotRead("this host has no deployments of an OS")
    try:
        counting = await HostBootCounter(enabled=settings.count_boots == "auto").counting()
    except PermissionError as error:
        return NotRead(f"the configuration of the boot loader is for root: {error.filename}", _AS_ROOT)
    if counting.by is CountedBy.NOTHING and os.geteuid() != 0:
        return NotRead(counting.why, _AS_ROOT)
    return counting
