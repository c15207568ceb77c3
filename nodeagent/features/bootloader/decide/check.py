# SPDX-License-Identifier: Apache-2.0
"""Decide what an update of the OS does about the bootloader, before the host is disrupted.

A kernel that the bootloader refuses leaves the host at a prompt of GRUB, where no agent can repair it. With Secure Boot
that happens if the keys of the kernel are newer than the installed shim.

bootupd (github.com/coreos/bootupd) installs the bootloader; an update of the OS does not touch it. ``bootupctl status
--json`` says what is installed, and the tree of a deployment has the same kind of metadata about what it brings. The
key ``interrupted`` is not read: bootupd 0.2.35 never writes it, so its absence proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from nodeagent import typed
from nodeagent.features.bootloader.decide.secure_boot import KernelTrust, Signature, TrustedKeys, accepts
from nodeagent.features.bootloader.reasons import BootloaderReason
from nodeagent.kinds import AnyReason

T = TypeVar("T")

EFI = "EFI"

# Bytes of one JSON document. The status of two components has less than two thousand.
MAX_JSON: Final = 1 << 18

# Packages of one component, and characters of one text.
MAX_PACKAGES: Final = 64
MAX_TEXT: Final = 512

# At the end of a full name of a package, which bootupd of 2025 and before stores.
_ARCHITECTURES: Final = ("x86_64", "aarch64", "riscv64")

# Other characters, such as the colon after an epoch, only separate.
_PART: Final = re.compile(r"[~^.-]|[0-9]+|[A-Za-z]+")
# The order of parts of different kinds.
_MARKS: Final = {"~": 0, "-": 2, "^": 3, ".": 4}
_END, _LETTERS, _DIGITS = 1, 5, 6


class BootloaderState(StrEnum):
    """The installed bootloader, compared with that of the deployment."""

    SAME = "same"
    # Installing would be an update.
    OLDER = "older"
    # Installing would be a downgrade, which bootupd does not do.
    NEWER = "newer"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BootloaderContent:
    """The packages of a bootloader, as pairs of name and version in the order of their names. ``version`` is for
    messages."""

    version: str
    packages: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class BootloaderStatus:
    """The installed components by name (EFI, BIOS), and those that bootupd did not install but could take over.

    ``available`` is what bootupd would install. It may be less than the metadata of the tree, which bootupd 0.3 reduces
    to the bootloader that the host uses.
    """

    installed: Mapping[str, BootloaderContent] = field(default_factory=dict)
    available: Mapping[str, BootloaderContent] = field(default_factory=dict)
    adoptable: frozenset[str] = frozenset()


class _Module(Struct):
    name: str
    rpm_evr: str


class _Metadata(Struct):
    version: Annotated[str, Meta(min_length=1)]
    # Missing before 2025.
    versions: list[_Module] | None = None


class _Component(Struct):
    installed: _Metadata
    update: _Metadata | None = None


class _Status(Struct):
    """In a container, bootupd prints a list of components instead, without the installed versions."""

    components: dict[str, _Component]
    adoptable: dict[str, Any] = {}


def parse_status(data: bytes) -> BootloaderStatus:
    """Parse the output of ``bootupctl status --json``. Raises ``ValueError``."""
    status = _decode(data, _Status)
    installed = {name: _content(component.installed) for name, component in status.components.items()}
    available = {
        name: _content(component.update)
        for name, component in status.components.items()
        if component.update is not None
    }
    return BootloaderStatus(installed, available, frozenset(status.adoptable))


def parse_payload(data: bytes) -> BootloaderContent:
    """Parse the metadata of a component in a deployment (usr/lib/bootupd/updates/EFI.json). Raises ``ValueError``."""
    return _content(_decode(data, _Metadata))


def _decode(data: bytes, kind: type[T]) -> T:
    if len(data) > MAX_JSON:
        raise ValueError(f"more than {MAX_JSON} bytes")
    return typed.from_json(data, kind)


def _content(metadata: _Metadata) -> BootloaderContent:
    if metadata.versions is None:
        packages = sorted({_package(package) for package in metadata.version.split(",")[:MAX_PACKAGES]}, key=_order)
    else:
        packages = [
            (package.name[:MAX_TEXT], package.rpm_evr[:MAX_TEXT]) for package in metadata.versions[:MAX_PACKAGES]
        ]
    return BootloaderContent(metadata.version[:MAX_TEXT], tuple(packages))


def _order(package: tuple[str, str]) -> tuple[str, list[tuple[int, int, str]]]:
    return package[0], version_parts(package[1])


def _package(text: str) -> tuple[str, str]:
    """Return the short name and the version of ``shim-x64-15.6-2.x86_64`` or ``shim-15.8-4``."""
    text = text[:MAX_TEXT]
    if not text.endswith(_ARCHITECTURES):
        name, _, version = text.partition("-")
        return name, version
    name, *rest = text.rpartition(".")[0].rsplit("-", 2)
    return name.partition("-")[0], "-".join(rest)


def compare(installed: BootloaderContent, available: BootloaderContent) -> BootloaderState:
    """Compare as bootupd does: one older package makes the whole an update, whatever the others are."""
    if installed == available:
        return BootloaderState.SAME
    newer = False
    for mine, other in zip(map(_order, installed.packages), map(_order, available.packages), strict=False):
        if mine < other:
            return BootloaderState.OLDER
        newer = newer or mine > other
    if len(installed.packages) != len(available.packages):
        fewer = len(installed.packages) < len(available.packages)
        return BootloaderState.OLDER if fewer else BootloaderState.NEWER
    return BootloaderState.NEWER if newer else BootloaderState.SAME


def version_parts(text: str) -> list[tuple[int, int, str]]:
    """Return the parts of a version, so that lists compare as the version format specification of the UAPI group has
    it. The end comes before any part but ``~``."""
    parts = [_part(match) for match in _PART.finditer(text)]
    return [*parts, (_END, 0, "")]


def _part(match: re.Match[str]) -> tuple[int, int, str]:
    text = match[0]
    if text[0] in _MARKS:
        return _MARKS[text[0]], 0, ""
    return (_DIGITS, int(text), "") if text.isdigit() else (_LETTERS, 0, text)


class BootloaderUpdate(StrEnum):
    """The setting ``bootloader.update``."""

    NEVER = "never"
    REPORT = "report"
    BEFORE_REBOOT = "before-reboot"
    AFTER_BOOT = "after-boot"


@dataclass(frozen=True, slots=True)
class BootChain:
    """The signatures of a boot. None: it could not be read.

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
    reason: AnyReason = BootloaderReason.BOOTLOADER_OLDER


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
            return BootloaderDecision(BootloaderStep.UPDATE, phrase(check), BootloaderReason.BOOTLOADER_TOO_OLD)
        message = f"with Secure Boot, the installed bootloader refuses the kernel of the new OS ({phrase(check)})"
        return BootloaderDecision(BootloaderStep.REFUSE, message, BootloaderReason.BOOTLOADER_TOO_OLD)
    # Installed, it would replace one that works by one that the firmware refuses.
    if older and check.unfit:
        message = f"the bootloader of the new OS is not installed: {check.unfit}"
        return BootloaderDecision(BootloaderStep.WARN, message, BootloaderReason.BOOTLOADER_UNFIT)
    if older and update is BootloaderUpdate.BEFORE_REBOOT and possible:
        return BootloaderDecision(BootloaderStep.UPDATE, phrase(check))
    # It is updated when the new OS is verified, so a warning would be early.
    if older and not (update is BootloaderUpdate.AFTER_BOOT and possible):
        message = f"the installed bootloader is older than that of the new OS ({phrase(check)})"
        return BootloaderDecision(BootloaderStep.WARN, message)
    if check.state is BootloaderState.UNKNOWN:
        message = f"the installed bootloader is unknown: {check.why}"
        return BootloaderDecision(BootloaderStep.WARN, message, BootloaderReason.BOOTLOADER_UNKNOWN)
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
