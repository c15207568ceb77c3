# SPDX-License-Identifier: Apache-2.0
"""What applies the OS fields of a config on this host: the program of a feature, or nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from nodeagent.core.self_check import OsService
from nodeagent.features.selfcheck.decide.os_fields import OsFacts
from nodeagent.host.booted_system import HostBootedSystem
from nodeagent.host.dbus.client import Bus
from nodeagent.installed import doors_by_name
from nodeagent.reasons import Reason, hint

# An update is refused for the same reason.
NO_OS: Final = OsService(
    "", "", f"this host is not booted from an image ({Reason.NO_DEPLOYMENTS})", hint(Reason.NO_DEPLOYMENTS)
)


async def read_os_fields(bus: Bus, chosen: str | None, root: Path = Path("/")) -> OsFacts:
    """``chosen`` as in ``read_os_service``. Raises ``AgentError`` if systemd does not answer."""
    return OsFacts(await read_os_service(bus, chosen), await HostBootedSystem(root).fips())


async def read_os_service(bus: Bus, chosen: str | None) -> OsService:
    """Return what serves the OS of this host, as the daemon finds it.

    ``chosen`` is the feature that has staged an OS here before, "" for none, None if that cannot be read. Raises as
    ``read_os_fields``.
    """
    if chosen and (service := await _service(bus, chosen, chosen=True)) is not None:
        return service
    names = list(doors_by_name())
    services = [service for name in names if (service := await _service(bus, name, chosen=False)) is not None]
    if not services:
        return NO_OS
    if chosen is not None:
        return services[0]
    after_staging = [service for name in names if (service := await _service(bus, name, chosen=True)) is not None]
    others = dict.fromkeys(service.program for service in after_staging if service.program != services[0].program)
    return replace(services[0], others=tuple(others))


async def _service(bus: Bus, name: str, *, chosen: bool) -> OsService | None:
    door = doors_by_name().get(name)
    return await door.os_service(bus, chosen) if door is not None and door.os_service is not None else None
