# SPDX-License-Identifier: Apache-2.0
"""Check, and update, the bootloader around an update of the OS.

A kernel that the bootloader refuses is found right after the staging, and again under the lease: the update ends before
the host is drained, and is not tried again without a request. An update of the bootloader holds the lease and the slot,
so that a bad one stops at the first host of a fleet. It may be repeated after a kill, because the second check shows
whether it is done.
"""

from __future__ import annotations

from typing import Final

from nodeagent.core.plan.bootloader import (
    BootloaderCheck,
    BootloaderState,
    BootloaderStep,
    BootloaderUpdate,
    decide,
)
from nodeagent.core.plan.secure_boot import KernelTrust
from nodeagent.errors import AgentError, Refused, ServiceUnavailable
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import PhaseEntered
from nodeagent.update.run import Run
from nodeagent.update.stages.os_deployments import HostDeployments

# Updates of the bootloader that one update of the OS begins. A host that goes down during each of them must stop.
MAX_TRIES: Final = 3

_SUBJECT: Final = "bootloader"


async def before_disruption(run: Run, os: HostDeployments) -> None:
    """Check the bootloader under the lease, and update it if the settings say so.

    Raises ``Refused`` (``BootloaderTooOld``, ``BootloaderUpdateFailed``) if the kernel of the new OS would not start.
    """
    if (bootloader := await check(run, os)) is None:
        return
    failure = await _update(run, os, bootloader)
    if failure and bootloader.kernel is KernelTrust.REFUSED:
        raise Refused(failure, reason=Reason.BOOTLOADER_UPDATE_FAILED)
    if failure:
        run.report_failure(_SUBJECT, failure, Reason.BOOTLOADER_UPDATE_FAILED)


async def after_boot(run: Run, os: HostDeployments) -> None:
    """Check the bootloader of the verified OS, and update it if the settings say so. A failure is reported only."""
    try:
        bootloader = await os.check_bootloader()
        if bootloader is None or not _is_due(run, bootloader):
            return
        if failure := await _update(run, os, bootloader):
            run.report_failure(_SUBJECT, failure, Reason.BOOTLOADER_UPDATE_FAILED)
    except ServiceUnavailable:
        raise
    except AgentError as error:
        run.report_failure(_SUBJECT, error.message, error.reason)


def _is_due(run: Run, bootloader: BootloaderCheck) -> bool:
    if run.policy.bootloader is not BootloaderUpdate.AFTER_BOOT:
        return False
    # The OS runs, so the same rules apply as before a reboot into it.
    decision = decide(bootloader, BootloaderUpdate.BEFORE_REBOOT, bios=run.policy.bootloader_bios)
    return decision.step is BootloaderStep.UPDATE


async def check(run: Run, os: HostDeployments) -> BootloaderCheck | None:
    """Check the bootloader for the staged deployment, and return the check if an update of the bootloader is due.

    Reports a warning. Raises ``Refused`` (``BootloaderTooOld``).
    """
    bootloader = await os.check_bootloader()
    if bootloader is None:
        return None
    decision = decide(bootloader, run.policy.bootloader, bios=run.policy.bootloader_bios)
    match decision.step:
        case BootloaderStep.REFUSE:
            raise Refused(decision.message, reason=decision.reason)
        case BootloaderStep.WARN:
            run.report_failure(_SUBJECT, decision.message, decision.reason)
        case BootloaderStep.UPDATE:
            return bootloader
        case BootloaderStep.NONE:
            pass
    return None


async def _update(run: Run, os: HostDeployments, before: BootloaderCheck) -> str:
    """Update the bootloader, and return why that failed, "" if a second check shows that it is done."""
    tries = run.record.os.bootloader_tries
    if tries >= MAX_TRIES:
        return f"the update of the bootloader was begun {tries} times, and did not end"
    # Saved first: the update itself may bring the host down.
    run.update.change_os(bootloader_tries=tries + 1)
    await run.save()
    run.narrate(PhaseEntered, f"updating the bootloader from {before.installed} to {before.available}")
    failure = ""
    try:
        await os.update_bootloader(bios=run.policy.bootloader_bios)
    except ServiceUnavailable:
        raise
    except AgentError as error:
        failure = error.message
    # The second check decides, whatever the command reported: an update that lost its answer may be done.
    after = await os.check_bootloader()
    if after is None or after.state is not BootloaderState.SAME:
        installed = (after.installed if after is not None else "") or "unknown"
        return failure or f"bootupctl update reported no error, and the installed bootloader is {installed}"
    if after.kernel is KernelTrust.REFUSED:
        return f"the bootloader was updated to {after.installed}, and refuses the kernel of the new OS as well"
    note = f"the bootloader was updated from {before.installed} to {after.installed}"
    run.update.add_notes(note)
    run.narrate(PhaseEntered, note)
    return ""
