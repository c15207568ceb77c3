# SPDX-License-Identifier: Apache-2.0
"""What applies the OS fields of a config on this host: rpm-ostree, or nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from nodeagent.errors import Unreconcilable
from nodeagent.features.selfcheck.decide.os_fields import OsFacts
from nodeagent.host.booted_system import HostBootedSystem
from nodeagent.host.dbus.client import Bus
from nodeagent.host.rpmostree.client import SERVICE
from nodeagent.host.rpmostree.guards import bootc_host, native_bootc, without_daemon
from nodeagent.host.systemd_jobs import MANAGER, NAME, PATH
from nodeagent.reasons import Reason, hint

_UNIT: Final = "org.freedesktop.systemd1.Unit"
NO_OS: Final = "this host is not booted from an image"


async def read_os_fields(bus: Bus, root: Path = Path("/")) -> OsFacts:
    """Raises ``AgentError`` if systemd does not answer."""
    fips = await HostBootedSystem(root).fips()
    if await asyncio.to_thread(native_bootc, root):
        return _refused(bootc_host(), fips)
    if not await asyncio.to_thread((root / "run/ostree-booted").exists):
        return _refused(Unreconcilable(NO_OS, reason=Reason.NO_DEPLOYMENTS), fips)
    (path,) = await bus.call(NAME, PATH, MANAGER, "LoadUnit", "s", (SERVICE,))
    match await bus.get(NAME, path, _UNIT, "LoadState"):
        case "not-found":
            return _refused(await asyncio.to_thread(without_daemon, root), fips)
        case "masked":
            return OsFacts(f"{SERVICE} is masked", f"systemctl unmask {SERVICE}", fips)
        case _:
            return OsFacts(fips=fips)


def _refused(refusal: Unreconcilable, fips: bool) -> OsFacts:
    # The check and the refusal of a config have the same reason.
    return OsFacts(f"{refusal.message} ({refusal.reason})", hint(refusal.reason), fips)
