# SPDX-License-Identifier: Apache-2.0
"""What applies the OS fields of a config on this host: the program of a feature, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nodeagent.core.self_check import OsService
from nodeagent.features.selfcheck.decide.os_fields import OsFacts
from nodeagent.host.booted_system import HostBootedSystem
from nodeagent.host.dbus.client import Bus
from nodeagent.installed import doors
from nodeagent.reasons import Reason, hint

# An update is refused for the same reason.
NO_OS: Final = OsService(
    "", "", f"this host is not booted from an image ({Reason.NO_DEPLOYMENTS})", hint(Reason.NO_DEPLOYMENTS)
)


async def read_os_fields(bus: Bus, root: Path = Path("/")) -> OsFacts:
    """Raises ``AgentError`` if systemd does not answer."""
    return OsFacts(await read_os_service(bus), await HostBootedSystem(root).fips())


async def read_os_service(bus: Bus) -> OsService:
    """Return what the first feature answers. Raises as ``read_os_fields``."""
    for door in doors():
        service: OsService | None = await door.os_service(bus) if door.os_service is not None else None
        if service is not None:
            return service
    return NO_OS
