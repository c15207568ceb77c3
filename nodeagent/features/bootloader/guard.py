# SPDX-License-Identifier: Apache-2.0
"""Check, and update, the bootloader around an update of the OS.

A kernel that the bootloader refuses is found right after the staging, and again under the lease: the update ends before
the host is drained, and is not tried again without a request. An update of the bootloader holds the lease and the slot,
so that a bad one stops at the first host of a fleet. It may be repeated after a kill, because the second check shows
whether it is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from nodeagent.core.once import Once
from nodeagent.core.plan.deployment import Deployment, staged
from nodeagent.errors import AgentError, Refused, ServiceUnavailable
from nodeagent.features.bootloader.decide.check import (
    BootloaderCheck,
    BootloaderDecision,
    BootloaderState,
    BootloaderStep,
    BootloaderUpdate,
    check_to_dict,
    decide,
)
from nodeagent.features.bootloader.decide.secure_boot import KernelTrust
from nodeagent.features.bootloader.events import BootloaderChecked
from nodeagent.features.bootloader.reasons import BootloaderReason
from nodeagent.features.bootloader.settings import BootloaderSettings
from nodeagent.update.ports.events import PhaseEntered
from nodeagent.update.run import Run, Update
from nodeagent.update.stages.guard import Guard
from nodeagent.update.stages.os_deployments import HostDeployments

# Updates of the bootloader that one update of the OS begins. A host that goes down during each of them must stop.
MAX_TRIES: Final = 3

_SUBJECT: Final = "bootloader"

# What the record keeps for the target: the updates that were begun.
_PART: Final = "bootloader_tries"


class Bootloader(Protocol):
    """The bootloader of this host, as bootupd manages it."""

    async def check(self, staged: Deployment | None) -> BootloaderCheck | None:
        """Compare the installed bootloader with that of ``staged``, None for the booted deployment.

        None on a host without bootupd. What cannot be read is unknown. Raises ``ServiceUnavailable`` without systemd.
        """
        ...

    async def update(self, staged: Deployment | None, *, bios: bool) -> None:
        """Install the bootloader of ``staged``, or for None of the booted OS; with ``bios``, also in the boot sectors.

        An update that still runs after a kill of the agent is awaited first. Raises ``Terminal``
        (``BootloaderUpdateFailed``), and ``ServiceUnavailable`` without systemd.
        """
        ...


class BootloaderGuard(Guard):
    def __init__(self, bootloader: Bootloader, settings: BootloaderSettings) -> None:
        self._bootloader = bootloader
        self._settings = settings
        self._reported: Once[BootloaderCheck] = Once()

    def use(self, settings: BootloaderSettings) -> None:
        self._settings = settings

    @property
    def _mode(self) -> BootloaderUpdate:
        return BootloaderUpdate(self._settings.update)

    async def report(self, os: HostDeployments) -> None:
        """Report the installed bootloader, compared with that of the staged deployment, or of the booted one."""
        with suppress(AgentError):
            await self._check(os)

    async def check_staged(self, run: Run) -> None:
        # An update that is due follows under the lease. Here it only must not be refused.
        if run.ports.os is not None:
            await self._due(run, run.ports.os)

    async def staged_plan(self, update: Update, os: HostDeployments) -> Mapping[str, Any]:  # noqa: ARG002
        # The update itself checks the bootloader again, so a plan does not fail because of it.
        with suppress(AgentError):
            if (check := await self._check(os)) is not None:
                return {"bootloader": {**check_to_dict(check), "then": str(self._decide(check).step)}}
        return {}

    async def before_disruption(self, run: Run) -> None:
        os = run.ports.os
        # Another program may have updated the bootloader since the staging, or replaced the deployment.
        if os is None or run.update.target is None or (check := await self._due(run, os)) is None:
            return
        failure = await self._update(run, os, check)
        if failure and check.kernel is KernelTrust.REFUSED:
            raise Refused(failure, reason=BootloaderReason.BOOTLOADER_UPDATE_FAILED)
        if failure:
            run.report_failure(_SUBJECT, failure, BootloaderReason.BOOTLOADER_UPDATE_FAILED)

    async def after_verification(self, run: Run) -> None:
        os = run.ports.os
        if os is None or run.update.target is None:
            return
        try:
            check = await self._check(os)
            if check is None or not self._is_due_after_boot(check):
                return
            if failure := await self._update(run, os, check):
                run.report_failure(_SUBJECT, failure, BootloaderReason.BOOTLOADER_UPDATE_FAILED)
        except ServiceUnavailable:
            raise
        # The new OS runs and is verified. A revert would not repair the bootloader.
        except AgentError as error:
            run.report_failure(_SUBJECT, error.message, error.reason)

    async def _check(self, os: HostDeployments) -> BootloaderCheck | None:
        """Report and return the installed bootloader compared with that of the staged deployment, or of the booted one.

        None on a host without bootupd, and if the settings leave the bootloader alone. Raises as ``HostDeployments``.
        """
        if self._mode is BootloaderUpdate.NEVER:
            return None
        check = await self._bootloader.check(staged(await os.list()))
        if check is not None and self._reported.is_new(check):
            os.reporter.emit(BootloaderChecked(check))
        return check

    async def _due(self, run: Run, os: HostDeployments) -> BootloaderCheck | None:
        """Check the bootloader for the staged deployment, and return the check if an update of the bootloader is due.

        Reports a warning. Raises ``Refused`` (``BootloaderTooOld``).
        """
        check = await self._check(os)
        if check is None:
            return None
        decision = self._decide(check)
        match decision.step:
            case BootloaderStep.REFUSE:
                raise Refused(decision.message, reason=decision.reason)
            case BootloaderStep.WARN:
                run.report_failure(_SUBJECT, decision.message, decision.reason)
            case BootloaderStep.UPDATE:
                return check
            case BootloaderStep.NONE:
                pass
        return None

    # For the reboot that follows the staging.
    def _decide(self, check: BootloaderCheck) -> BootloaderDecision:
        return decide(check, self._mode, bios=self._settings.bios)

    def _is_due_after_boot(self, check: BootloaderCheck) -> bool:
        # With before-reboot it was updated, or reported, before the host was disrupted.
        if self._mode is not BootloaderUpdate.AFTER_BOOT:
            return False
        # The OS runs, so the same rules apply as before a reboot into it.
        decision = decide(check, BootloaderUpdate.BEFORE_REBOOT, bios=self._settings.bios)
        return decision.step is BootloaderStep.UPDATE

    async def _update(self, run: Run, os: HostDeployments, before: BootloaderCheck) -> str:
        """Update the bootloader, and return why that failed, "" if a second check shows that it is done."""
        tries = _tries(run)
        if tries >= MAX_TRIES:
            return f"the update of the bootloader was begun {tries} times, and did not end"
        # Saved first: the update itself may bring the host down.
        run.update.change_os(parts={**run.record.os.parts, _PART: tries + 1})
        await run.save()
        run.narrate(PhaseEntered, f"updating the bootloader from {before.installed} to {before.available}")
        failure = ""
        try:
            await self._bootloader.update(staged(await os.list()), bios=self._settings.bios)
        except ServiceUnavailable:
            raise
        except AgentError as error:
            failure = error.message
        # The second check decides, whatever the command reported: an update that lost its answer may be done.
        after = await self._check(os)
        if after is None or after.state is not BootloaderState.SAME:
            installed = (after.installed if after is not None else "") or "unknown"
            return failure or f"bootupctl update reported no error, and the installed bootloader is {installed}"
        if after.kernel is KernelTrust.REFUSED:
            return f"the bootloader was updated to {after.installed}, and refuses the kernel of the new OS as well"
        note = f"the bootloader was updated from {before.installed} to {after.installed}"
        run.update.add_notes(note)
        run.narrate(PhaseEntered, note)
        return ""


def _tries(run: Run) -> int:
    # A newer agent may have kept something else.
    tries = run.record.os.parts.get(_PART, 0)
    return tries if isinstance(tries, int) else 0
