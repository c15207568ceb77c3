# SPDX-License-Identifier: Apache-2.0
"""Whether rpm-ostree serves the deployments of this host, and what a killed agent left of its work."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodeagent.core.self_check import OsService
from nodeagent.errors import AgentError, Unreconcilable
from nodeagent.features.rpmostree.client import SERVICE
from nodeagent.features.rpmostree.extensions import ExtensionsRepository
from nodeagent.features.rpmostree.reasons import RpmOstreeReason
from nodeagent.host.dbus.client import Bus
from nodeagent.host.ostree.credentials import Credentials
from nodeagent.host.ostree.programs import Services
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH, UNIT
from nodeagent.reasons import Reason, hint

_ROOT: Final = Path("/")


async def is_ours(root: Path = _ROOT) -> bool:
    """Return whether the host was booted from an image. That of bootc's own backend is refused later."""
    ostree = await asyncio.to_thread((root / "run/ostree-booted").exists)
    return ostree or await asyncio.to_thread(native_bootc, root)


def native_bootc(root: Path) -> bool:
    """Return whether the host was booted by bootc's own backend, which keeps its images without ostree.

    bootc itself uses the same kernel argument. Blocks for two small files in memory.
    """
    # ostree creates this file in every boot of one of its deployments.
    if (root / "run/ostree-booted").exists():
        return False
    try:
        arguments = (root / "proc/cmdline").read_text(encoding="utf-8", errors="replace").split()
    except FileNotFoundError:
        return False
    return any(argument.startswith("composefs=") for argument in arguments)


def bootc_host() -> Unreconcilable:
    """Return the error of a host without ostree."""
    message = "this host was booted by bootc's own back end, without ostree"
    return Unreconcilable(message, reason=RpmOstreeReason.BOOTC_HOST)


def without_daemon() -> Unreconcilable:
    """Return the error of a host with deployments of ostree and without rpm-ostree."""
    return Unreconcilable("this host has deployments, but no rpm-ostree", reason=Reason.NO_DEPLOYMENTS)


async def read_os_service(bus: Bus, root: Path = _ROOT) -> OsService | None:
    """Return whether rpm-ostree serves the OS of this host, None if that was not booted from an image.

    Raises ``AgentError`` if systemd does not answer.
    """
    if await asyncio.to_thread(native_bootc, root):
        return _refused(bootc_host())
    if not await is_ours(root):
        return None
    (path,) = await bus.call(NAME, PATH, MANAGER, "LoadUnit", "s", (SERVICE,))
    match await bus.get(NAME, path, UNIT, "LoadState"):
        case "not-found":
            return _refused(without_daemon())
        case "masked":
            return OsService("rpm-ostree", SERVICE, f"{SERVICE} is masked", f"systemctl unmask {SERVICE}")
        case _:
            return OsService("rpm-ostree", SERVICE)


def _refused(refusal: Unreconcilable) -> OsService:
    # The check and the refusal of a config have the same reason.
    return OsService("rpm-ostree", SERVICE, f"{refusal.message} ({refusal.reason})", hint(refusal.reason))


async def sweep(services: Services, root: Path = _ROOT) -> None:
    """Remove a pull secret that rpm-ostree would read for every later pull, also of other programs, and packages.

    A failure is reported when credentials are provided, where the removal fails again.
    """
    for remove in (Credentials(root).sweep, ExtensionsRepository(services, root).sweep):
        with suppress(AgentError):
            await asyncio.to_thread(remove)
