# SPDX-License-Identifier: Apache-2.0
"""Common parts of the tests of the adapter: short pauses, bounds that a busy machine keeps, a host in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dbus_next import Variant

from nodeagent.core.config.image import parse_image
from nodeagent.core.plan.deployment import OsTarget, StageProgress
from nodeagent.features.rpmostree.adapter import RpmOstree
from nodeagent.features.rpmostree.transaction import Timing
from nodeagent.host.dbus.client import Bus
from nodeagent.host.systemd import Systemd
from tests.host.fake_systemd import FakeSystemd
from tests.support.fixtures import PrivateBus

NEW = f"quay.io/org/os@sha256:{'1' * 64}"
IMAGE = OsTarget(image=parse_image(NEW))
QUICK = Timing(
    call=10,
    short=5,
    connect=1,
    stall=10,
    total=20,
    cancel=0.3,
    leave=2,
    complete=5,
    restart=5,
    busy=10,
    busy_pause=0.05,
    busy_pause_max=0.1,
    retry_pause=0.05,
    unlock=5,
)
INACTIVE = {"ActiveState": Variant("s", "inactive")}


def adapter(private_bus: PrivateBus, systemd: Systemd, root: Path, **more: Any) -> RpmOstree:
    more = {"min_free": 0, "timing": QUICK} | more
    return RpmOstree(systemd, make_bus=lambda: Bus(private_bus.address, connect_for=2, patience=20), root=root, **more)


def quiet(manager: FakeSystemd) -> FakeSystemd:
    """No other driver runs."""
    for unit in ("zincati.service", "bootc-fetch-apply-updates.timer", "ostree-boot-complete.service"):
        manager.units[unit] = dict(INACTIVE)
    return manager


class ProgressList(list[StageProgress]):
    def tasks(self) -> list[str]:
        return [one.task for one in self]
