"""From staged to booted: unlocking without a reboot, and what the last shutdown made of it.

The daemon's own way to unlock reboots at once, whatever our lease and inhibitors say. libostree can unlock alone: since
2023.8 with ``ostree admin lock-finalization --unlock``, before by removing a file. Which of the two locks is there says
which way is right, not a version.

The command needs a writable /sysroot and a mount namespace of its own making, which our unit does not allow us; so
systemd runs it, in a unit of its own.

A shutdown finalizes only if ostree-finalize-staged.service is active by then, for its work is in its ``ExecStop=``. Old
versions have it started by a path unit some time after staging, which a quick reboot overtakes (OCPBUGS-51150). So it
is started and looked at here. It must never be restarted: its stop *is* the finalization.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from nodeagent.errors import AgentError, Refused, Terminal
from nodeagent.host.dbus.client import Bus
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.rpmostree.failures import one_line
from nodeagent.host.rpmostree.guards import Services
from nodeagent.host.rpmostree.output import output_of
from nodeagent.host.rpmostree.staged import Lock, StagedState
from nodeagent.host.rpmostree.timing import Timing
from nodeagent.host.transient import run_unit

__all__ = ["Finalization"]

_FINALIZE = "ostree-finalize-staged.service"
_COMPLETE = "ostree-boot-complete.service"
_UNLOCK = ("/usr/bin/ostree", "admin", "lock-finalization", "--unlock")
_STAMP = "boot/ostree/finalize-failure.stamp"
_PREFIX = "ostree-finalize-staged.service failed on previous boot: "
_ERROR = "error: "  # as every command of ostree begins its last line
_JOURNAL_TIMEOUT = 20.0  # seconds; a cold journal of gigabytes on a slow disk
_JOURNAL_LINES = 100
_MAX_STAMP = 1 << 16  # bytes


class Finalization:
    def __init__(
        self,
        services: Services,
        staged: StagedState,
        make_bus: Callable[[], Bus],
        root: Path,
        timing: Timing,
    ) -> None:
        self._services = services
        self._staged = staged
        self._make_bus = make_bus
        self._stamp = root / _STAMP
        self._timing = timing

    async def unlock(self, deployment: str) -> None:
        lock = await self._lock_of(deployment)
        await self._finalizer_runs()
        if lock.key:
            async with self._make_bus() as bus:
                await run_unit(bus, _UNLOCK, "Unlock the staged deployment for nodeagent", self._timing.unlock)
        elif lock.legacy:
            await asyncio.to_thread(self._staged.clear_legacy)
        if (await self._lock_of(deployment)).locked:
            raise Terminal(f"{deployment} is still locked, although it was unlocked", reason="UnlockFailed")

    async def _lock_of(self, deployment: str) -> Lock:
        lock = await asyncio.to_thread(self._staged.lock)
        if lock is None or lock.id != deployment:
            there = lock.id if lock else "nothing"
            raise Refused(f"{deployment} is not staged any more, but {there}", reason="StagedLost")
        return lock

    async def _finalizer_runs(self) -> None:
        if (await self._services.state(_FINALIZE)).active == "active":
            return
        await self._services.start(_FINALIZE, self._timing.restart)
        if (state := await self._services.state(_FINALIZE)).active != "active":
            message = f"{_FINALIZE} is {state.active}: a shutdown would not finalize what is staged"
            raise Terminal(message, reason="UnlockFailed")

    # -- afterwards -----------------------------------------------------------------------------------------------

    async def failure(self) -> str:
        """The stamp is there until ostree-boot-complete.service has read it, which then fails with its text."""
        if text := await asyncio.to_thread(self._read_stamp):
            return text
        try:
            failed = (await self._services.state(_COMPLETE)).active == "failed"
        except AgentError as error:
            if error.reason != "UnitNotFound":
                raise
            failed = False
        if not failed:
            return await self._journal_says()
        lines = await _journal("--boot=0", _COMPLETE)
        said = next((line for line in reversed(lines) if _PREFIX in line), "")
        return one_line(said.partition(_PREFIX)[2]) or f"{_COMPLETE} failed; its journal does not say why"

    async def _journal_says(self) -> str:
        """No stamp is left by a finalization that systemd had to kill, and by one that found no byte free in /boot,
        where the stamp is; only a journal, if that is kept."""
        lines = await _journal("--boot=-1", _FINALIZE)
        ended = next((line for line in reversed(lines) if "Failed with result '" in line), "")
        if not ended or "'timeout'" in ended:
            return one_line(ended)
        error = next((line for line in reversed(lines) if line.startswith(_ERROR)), "")
        return one_line(error.removeprefix(_ERROR) or ended)

    def _read_stamp(self) -> str:
        with translated("read", str(self._stamp)):
            try:
                with self._stamp.open("rb") as file:
                    return one_line(file.read(_MAX_STAMP).decode("utf-8", "replace"))
            except FileNotFoundError:
                return ""


async def _journal(boot: str, unit: str) -> list[str]:
    """The last lines; none if there is no journal of that boot."""
    options = ("--output=cat", "--no-pager", "--quiet", f"--lines={_JOURNAL_LINES}")
    return (await output_of("journalctl", boot, f"--unit={unit}", *options, deadline=_JOURNAL_TIMEOUT)).splitlines()
