# SPDX-License-Identifier: Apache-2.0
"""Whether rpm-ostree serves the deployments of this host, and what a killed agent left of its work."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodeagent.core.self_check import OsService
from nodeagent.errors import AgentError, Unreconcilable
from nodeagent.features.rpmostree.client import SERVICE
from nodeagent.features.rpmostree.extensions import ExtensionsRepository
from nodeagent.host.dbus.client import Bus
from nodeagent.host.ostree.credentials import Credentials
from nodeagent.host.ostree.programs import Services
from nodeagent.host.systemd import Systemd
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH, UNIT
from nodeagent.reasons import Reason, hint

# Of an OS.
UNITS: Final = "usr/lib/systemd/system"
_ROOT: Final = Path("/")


async def is_ours(services: Services, root: Path = _ROOT, *, chosen: bool = False) -> bool:
    """Return whether ostree booted this host.

    ``chosen``: an OS was staged here before. Then the host is left to others if it has no rpm-ostree any more.
    """
    if not await asyncio.to_thread((root / "run/ostree-booted").exists):
        return False
    return not chosen or not await is_absent(services)


async def is_absent(services: Services) -> bool:
    """Return whether the image has no daemon. One that is masked, or that fails, is there."""
    return (await services.state(SERVICE)).load == "not-found"


def has_daemon(tree: Path) -> bool:
    """Return whether a tree has the unit of the daemon. Blocks."""
    return os.path.lexists(tree / UNITS / SERVICE)


def without_daemon() -> Unreconcilable:
    """Return the error of a host with deployments of ostree and without rpm-ostree."""
    return Unreconcilable("this host has deployments, but no rpm-ostree", reason=Reason.NO_DEPLOYMENTS)


async def read_os_service(bus: Bus, root: Path = _ROOT, *, chosen: bool = False) -> OsService | None:
    """Return whether rpm-ostree serves the OS of this host, None if that was not booted from an image.

    ``chosen`` as in ``is_ours``. Raises ``AgentError`` if systemd does not answer.
    """
    if not await is_ours(Systemd(bus), root, chosen=chosen):
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
