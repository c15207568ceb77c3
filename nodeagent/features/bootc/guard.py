# SPDX-License-Identifier: Apache-2.0
"""What other programs leave on such a host for its next reboot, beside deployments: named, and never touched.

bootc writes /run/reboot-required whenever it has staged a deployment or changed the boot order, and nothing takes the
file away before the boot (``deploy.rs`` of bootc 1.16). kured and others reboot the host because of it, also where the
deployment is locked, or gone. A /usr that was made writable (``bootc usr-overlay``, ``ostree admin unlock``) is as the
image again after the next boot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from nodeagent.errors import Refused
from nodeagent.features.bootc.reasons import BootcReason
from nodeagent.host import config_file
from nodeagent.host.fs.read_inside import read_regular
from nodeagent.host.ostree.failures import one_line
from nodeagent.update.ports.host import Reporter
from nodeagent.update.run import Update
from nodeagent.update.stages.guard import Guard

REBOOT_REQUIRED: Final = "run/reboot-required"
TOPIC: Final = "reboot of others"

# libostree's notes about deployments, one directory for each.
_STATES: Final = "run/ostree/deployment-state"
_UNLOCKED: Final = ("unlocked-development", "unlocked-transient")
# What bootc writes begins with its name. Debian's packages write another text, other programs none at all.
_BOOTC: Final = "bootc:"
# Bytes.
_MAX: Final = 4096


class OthersGuard(Guard):
    """``root`` is for tests."""

    def __init__(self, reporter: Reporter, root: Path = Path("/")) -> None:
        self._reporter = reporter
        self._root = root
        self._look = asyncio.Event()

    async def planned(self, update: Update, *, stops_node: bool) -> Sequence[str]:  # noqa: ARG002 - a reboot counts
        if update.reboots and await asyncio.to_thread(self._is_writable):
            return ("/usr was made writable by another program; the reboot drops what was changed there",)
        return ()

    @property
    def beside(self) -> Sequence[tuple[str, Callable[[], Awaitable[None]]]]:
        return (("the watch of /run/reboot-required", self._run),)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(config_file.watch(str(self._root / REBOOT_REQUIRED), self._look.set))
            tasks.create_task(self._report())

    async def _report(self) -> None:
        while True:
            await self._look.wait()
            # Cleared before the read, so that a change during the read is not missed.
            self._look.clear()
            await self.check()

    async def check(self) -> None:
        """Report the file, or that it is gone."""
        text = await asyncio.to_thread(self._read)
        if text is None:
            self._reporter.solved(TOPIC, f"/{REBOOT_REQUIRED} is gone")
            return
        by = "bootc" if text.startswith(_BOOTC) else "another program"
        words = text.removeprefix(_BOOTC).strip()
        message = f"{by} wrote /{REBOOT_REQUIRED}" + (f": {words}" if words else "")
        self._reporter.problem(TOPIC, Refused(message, reason=BootcReason.REBOOT_ANNOUNCED))

    def _read(self) -> str | None:
        try:
            return one_line(read_regular(self._root / REBOOT_REQUIRED, _MAX).decode("utf-8", "replace"))
        except FileNotFoundError:
            return None
        except OSError:
            return ""

    def _is_writable(self) -> bool:
        # The notes are about the booted deployment: /run is empty after a boot, and no other one can be made writable.
        states = self._root / _STATES
        return any(path.name in _UNLOCKED for path in states.glob("*/*"))
