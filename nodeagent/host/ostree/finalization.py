# SPDX-License-Identifier: Apache-2.0
"""Finalize a staged deployment: unlocking without a reboot, and the result of the last shutdown.

Unlocking. libostree unlocks without the reboot that other programs make of it: since 2023.8 with ``ostree admin
lock-finalization --unlock``, before that by removing a file. The kind of lock shows which one is right, not the
version. The command needs a writable /sysroot and its own mount namespace, which the unit of nodeagent does not have,
so systemd runs it in a transient unit.

Finalizing. A shutdown finalizes only if ostree-finalize-staged.service is active, because the work is in its
``ExecStop=``. Old versions start it with a path unit some time after staging, which a quick reboot overtakes
(OCPBUGS-51150). Therefore it is started and checked here. It must never be restarted: stopping it *is* the
finalization.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from nodeagent.errors import AgentError, Refused, Terminal
from nodeagent.host.dbus.client import Bus
from nodeagent.host.fs.os_errors import translated
from nodeagent.host.ostree.failures import one_line
from nodeagent.host.ostree.programs import CommandTiming, Services, output_of
from nodeagent.host.ostree.staged import Lock, StagedState
from nodeagent.host.systemd_jobs import run_unit
from nodeagent.reasons import Reason

_FINALIZE = "ostree-finalize-staged.service"
_COMPLETE = "ostree-boot-complete.service"
_UNLOCK = ("/usr/bin/ostree", "admin", "lock-finalization", "--unlock")
_STAMP = "boot/ostree/finalize-failure.stamp"
_PREFIX = "ostree-finalize-staged.service failed on previous boot: "
# The last line of each failed ostree command begins with it.
_ERROR = "error: "
# Seconds; a cold journal of gigabytes on a slow disk.
_JOURNAL_TIMEOUT = 20.0
_JOURNAL_LINES = 100
# Bytes.
_MAX_STAMP = 1 << 16


class Finalization:
    """Unlocks the staged deployment, and reports a failed finalization."""

    def __init__(
        self,
        services: Services,
        staged: StagedState,
        make_bus: Callable[[], Bus],
        root: Path,
        timing: CommandTiming,
    ) -> None:
        self._services = services
        self._staged = staged
        self._make_bus = make_bus
        self._stamp = root / _STAMP
        self._timing = timing

    async def unlock(self, deployment: str) -> None:
        """Unlock the staged deployment. Raises ``Refused`` (``StagedLost``) and ``Terminal`` (``UnlockFailed``)."""
        lock = await self._lock_of(deployment)
        await self._finalizer_runs()
        if lock.key:
            async with self._make_bus() as bus:
                await run_unit(bus, _UNLOCK, "Unlock the staged deployment for nodeagent", self._timing.unlock)
        elif lock.legacy:
            await asyncio.to_thread(self._staged.clear_legacy)
        if (await self._lock_of(deployment)).locked:
            raise Terminal(f"{deployment} is still locked after unlocking it", reason=Reason.UNLOCK_FAILED)

    async def _lock_of(self, deployment: str) -> Lock:
        lock = await asyncio.to_thread(self._staged.lock)
        if lock is None or lock.id != deployment:
            staged = f"; {lock.id} is staged" if lock else ""
            raise Refused(f"{deployment} is no longer staged{staged}", reason=Reason.STAGED_LOST)
        return lock

    async def _finalizer_runs(self) -> None:
        if (await self._services.state(_FINALIZE)).active == "active":
            return
        # An admin may have stopped it. Its ExecStop is what finalizes, so it has to be active before the shutdown.
        await self._services.start(_FINALIZE, self._timing.restart)
        if (state := await self._services.state(_FINALIZE)).active != "active":
            message = f"{_FINALIZE} is {state.active}: a shutdown would not finalize the staged deployment"
            raise Terminal(message, reason=Reason.UNLOCK_FAILED)

    # -- after a boot -----------------------------------------------------------------------------------------------

    async def failure(self) -> str:
        """Return why the last shutdown did not finalize, "" if it did or if that is unknown.

        The stamp exists until ostree-boot-complete.service has read it, which then fails with its text.
        """
        if text := await asyncio.to_thread(self._read_stamp):
            return text
        try:
            failed = (await self._services.state(_COMPLETE)).active == "failed"
        except AgentError as error:
            # Versions of ostree before the stamp have no such unit.
            if error.reason != Reason.UNIT_NOT_FOUND:
                raise
            failed = False
        if not failed:
            return await self._failure_in_journal()
        lines = await _journal("--boot=0", _COMPLETE)
        text = next((line for line in reversed(lines) if _PREFIX in line), "")
        return one_line(text.partition(_PREFIX)[2]) or f"{_COMPLETE} failed; its journal gives no reason"

    async def _failure_in_journal(self) -> str:
        """Return the failure from the journal, if that is persistent.

        A finalization leaves no stamp if systemd killed it, or if /boot, which has the stamp, was full.
        """
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


async def _journal(boot: str, unit: str) -> Sequence[str]:
    """Return the last lines, none if there is no journal of that boot."""
    options = ("--output=cat", "--no-pager", "--quiet", f"--lines={_JOURNAL_LINES}")
    return await output_of("journalctl", boot, f"--unit={unit}", *options, deadline=_JOURNAL_TIMEOUT)
