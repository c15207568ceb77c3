"""A soft reboot that somebody prepared while the staged deployment is locked.

libostree mounts the staged deployment at /run/nextroot for that (``ostree admin prepare-soft-reboot``, since 2025.3),
and does not look at the lock. The shutdown then does not finalize it, and yet it is what starts: with an /etc that is
not merged, so with another machine id and without any local file, and without a boot entry, so that no ostree command
works before a full reboot, which goes back. Any ``systemctl reboot`` by others becomes such a soft reboot.

A reboot of ours is a full one whatever is mounted there, and boots nothing that is locked. The preparation is cleared
before it all the same: the reboot may be late, or not come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from nodeagent.errors import AgentError, Refused
from nodeagent.host.dbus.client import Bus
from nodeagent.host.rpmostree.staged import StagedState
from nodeagent.host.rpmostree.timing import Timing
from nodeagent.host.transient import run_unit

__all__ = ["PREPARED", "SoftReboot"]

PREPARED = "/run/ostree/nextroot-booted"
"""libostree writes it when everything is mounted, and removes it with the mounts."""

_MOUNT = " /run/nextroot "
_RESET = ("/usr/bin/ostree", "admin", "prepare-soft-reboot", "--reset")


class SoftReboot:
    def __init__(self, staged: StagedState, make_bus: Callable[[], Bus], root: Path, timing: Timing) -> None:
        self._staged = staged
        self._make_bus = make_bus
        self._prepared = root / PREPARED.lstrip("/")
        self._mounts = root / "proc/self/mountinfo"
        self._timing = timing

    async def unmerged(self) -> str:
        """Id of the locked deployment that a soft reboot would start, "" if there is none."""
        return await asyncio.to_thread(self._unmerged)

    async def reset(self) -> None:
        """Raises ``Refused`` (``LockedSoftReboot``) if it is still prepared then."""
        why = ""
        try:
            async with self._make_bus() as bus:
                await run_unit(bus, _RESET, "Clear a soft reboot into a locked deployment", self._timing.unlock)
        except AgentError as error:
            why = f": {error.message}"
        if deployment := await self.unmerged():
            message = f"{deployment} is locked, prepared for a soft reboot, and that cannot be cleared{why}"
            raise Refused(message, reason="LockedSoftReboot")

    def _unmerged(self) -> str:
        # libostree deletes a staged deployment when another one is prepared, so it is the one that is mounted.
        lock = self._staged.lock()
        return lock.id if lock is not None and lock.locked and self._is_prepared() else ""

    def _is_prepared(self) -> bool:
        if self._prepared.exists():
            return True
        try:
            with self._mounts.open(encoding="utf-8", errors="replace") as lines:
                return any(_MOUNT in line for line in lines)
        except OSError:
            return False
