"""Decide what an update of the OS does about the bootloader, before the host is disrupted.

A kernel that the bootloader refuses leaves the host at a prompt of GRUB, where no agent can repair it. With Secure Boot
that happens if the keys of the kernel are newer than the installed shim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from nodeagent.core.plan.bootloader import BootloaderState
from nodeagent.core.plan.secure_boot import KernelTrust, Signature, TrustedKeys, accepts
from nodeagent.reasons import Reason

EFI = "EFI"


class BootloaderUpdate(StrEnum):
    """The setting ``bootloader.update``."""

    NEVER = "never"
    REPORT = "report"
    BEFORE_REBOOT = "before-reboot"
    AFTER_BOOT = "after-boot"


@dataclass(frozen=True, slots=True)
class BootChain:
    """What is known about the signatures of a boot. None: it could not be read.

    ``keys`` are those that the firmware and the running shim accept, ``payload_keys`` those within the shim that the
    deployment brings. ``booted`` are the signatures of the running kernel, ``next`` those of the kernel that follows.
    ``revoked`` is the component whose generation in that kernel is revoked, "" if that is not known.
    """

    secure_boot: bool | None = None
    keys: TrustedKeys | None = None
    payload_keys: TrustedKeys | None = None
    booted: Sequence[Signature] | None = None
    next: Sequence[Signature] | None = None
    revoked: str = ""


@dataclass(frozen=True, slots=True)
class BootloaderCheck:
    """The installed bootloader, compared with that of the deployment that boots next.

    ``component`` is EFI or BIOS. ``kernel`` is whether the installed bootloader starts the next kernel, and
    ``kernel_after_update`` whether the one of the deployment does. ``revoked`` as in ``BootChain``. ``unfit`` is why
    the firmware would refuse the bootloader of the deployment, "" if that is not known. ``why`` is why the state is
    unknown.
    """

    component: str = EFI
    state: BootloaderState = BootloaderState.UNKNOWN
    installed: str = ""
    available: str = ""
    secure_boot: bool | None = None
    kernel: KernelTrust = KernelTrust.UNKNOWN
    kernel_after_update: KernelTrust = KernelTrust.UNKNOWN
    revoked: str = ""
    unfit: str = ""
    why: str = ""


class BootloaderStep(StrEnum):
    NONE = "none"
    WARN = "warn"
    UPDATE = "update"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class BootloaderDecision:
    step: BootloaderStep = BootloaderStep.NONE
    message: str = ""
    reason: Reason = Reason.BOOTLOADER_OLDER


def judge(chain: BootChain, state: BootloaderState) -> tuple[KernelTrust, KernelTrust]:
    """Return whether the installed bootloader starts the next kernel, and whether that of the deployment does."""
    # Without Secure Boot no signature is checked, by the firmware, shim or GRUB.
    if chain.secure_boot is False:
        return KernelTrust.ACCEPTED, KernelTrust.ACCEPTED
    unknown = KernelTrust.UNKNOWN
    if chain.secure_boot and chain.revoked:
        # The level is a variable of the firmware, which no update of the bootloader lowers.
        return KernelTrust.REFUSED, KernelTrust.REFUSED
    if not chain.secure_boot or chain.keys is None or chain.booted is None or chain.next is None:
        return unknown, unknown
    # The running kernel was accepted, so keys that do not explain that are not all of them.
    if accepts(chain.keys, chain.booted) is not KernelTrust.ACCEPTED:
        return unknown, unknown
    now = accepts(chain.keys, chain.next)
    if now is KernelTrust.ACCEPTED:
        return now, now
    updated = unknown if chain.payload_keys is None else accepts(chain.keys | chain.payload_keys, chain.next)
    # The installed shim need not be the running one: it may have been updated in this boot.
    return (updated if state is BootloaderState.SAME else now), updated


def decide(check: BootloaderCheck, update: BootloaderUpdate, *, bios: bool) -> BootloaderDecision:
    """``bios``: the settings allow updates of a component other than EFI, which a power cut may ruin."""
    older = check.state is BootloaderState.OLDER
    possible = older and not check.unfit and (bios or check.component == EFI)
    if update is BootloaderUpdate.NEVER:
        return BootloaderDecision()
    # An update after the boot would come too late: the host would not reach it.
    if check.kernel is KernelTrust.REFUSED:
        helps = check.kernel_after_update is not KernelTrust.REFUSED
        if possible and helps and update is BootloaderUpdate.BEFORE_REBOOT:
            return BootloaderDecision(BootloaderStep.UPDATE, phrase(check), Reason.BOOTLOADER_TOO_OLD)
        message = f"with Secure Boot, the installed bootloader refuses the kernel of the new OS ({phrase(check)})"
        return BootloaderDecision(BootloaderStep.REFUSE, message, Reason.BOOTLOADER_TOO_OLD)
    # Installed, it would replace one that works by one that the firmware refuses.
    if older and check.unfit:
        message = f"the bootloader of the new OS is not installed: {check.unfit}"
        return BootloaderDecision(BootloaderStep.WARN, message, Reason.BOOTLOADER_UNFIT)
    if older and update is BootloaderUpdate.BEFORE_REBOOT and possible:
        return BootloaderDecision(BootloaderStep.UPDATE, phrase(check))
    # It is updated when the new OS is verified, so a warning would be early.
    if older and not (update is BootloaderUpdate.AFTER_BOOT and possible):
        message = f"the installed bootloader is older than that of the new OS ({phrase(check)})"
        return BootloaderDecision(BootloaderStep.WARN, message)
    if check.state is BootloaderState.UNKNOWN:
        message = f"the installed bootloader is unknown: {check.why}"
        return BootloaderDecision(BootloaderStep.WARN, message, Reason.BOOTLOADER_UNKNOWN)
    return BootloaderDecision()


def phrase(check: BootloaderCheck) -> str:
    """Return the check as a phrase."""
    match check.state:
        case BootloaderState.SAME:
            text = f"bootloader same: {check.installed}"
        case BootloaderState.UNKNOWN:
            text = f"bootloader unknown: {check.why}"
        case _:
            text = f"bootloader {check.installed} installed, {check.available} in the new OS"
    if check.kernel is not KernelTrust.REFUSED:
        return text
    because = f": it has a revoked generation of {check.revoked}" if check.revoked else ""
    return f"{text}; the kernel is refused{because}"


def check_to_dict(check: BootloaderCheck) -> dict[str, Any]:
    """Return the object ``bootloader`` of the status and of a plan."""
    return {**msgspec.to_builtins(check), "summary": phrase(check)}
