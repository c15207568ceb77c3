# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nodeagent.core.self_check import OsService
from nodeagent.door import Base, Door, Feature
from nodeagent.features.rpmostree.reasons import RpmOstreeReason
from nodeagent.host.dbus.client import Bus
from nodeagent.settings.schema import Settings
from nodeagent.update.ports.host import Units
from nodeagent.update.ports.system import Deployments


async def _deployments(units: Units, settings: Settings, chosen: bool) -> Deployments | None:
    from nodeagent.features.rpmostree.adapter import RpmOstree
    from nodeagent.features.rpmostree.host import is_ours

    return RpmOstree(units, min_free=_min_free(settings)) if await is_ours(units, chosen=chosen) else None


def _serves_tree(tree: Path) -> bool:
    from nodeagent.features.rpmostree.host import has_daemon

    return has_daemon(tree)


async def _os_service(bus: Bus, chosen: bool) -> OsService | None:
    from nodeagent.features.rpmostree.host import read_os_service

    return await read_os_service(bus, chosen=chosen)


async def _recover(bus: Bus) -> None:
    from nodeagent.features.rpmostree.host import sweep
    from nodeagent.host.systemd import Systemd

    await sweep(Systemd(bus))


def _open(base: Base) -> Feature:
    from nodeagent.features.rpmostree.adapter import RpmOstree

    port = base.ports.os.port if base.ports.os is not None else None
    if not isinstance(port, RpmOstree):
        return Feature()
    return Feature(use=lambda settings: port.use(min_free=_min_free(settings)))


def _min_free(settings: Settings) -> int:
    return settings.os.free_space << 20


DOOR: Final = Door(
    title="rpm-ostree",
    page="usage/update-the-os.md",
    reasons=RpmOstreeReason,
    recover=_recover,
    deployments=_deployments,
    serves_tree=_serves_tree,
    os_service=_os_service,
    open=_open,
)
