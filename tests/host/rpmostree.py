"""What the tests of the adapter share: timings in tenths of a second, and a host under a temporary root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dbus_next import Variant

from nodeagent.core.deployment import OsTarget, StageProgress
from nodeagent.core.image import parse_image
from nodeagent.host.bus import Bus
from nodeagent.host.rpmostree.adapter import RpmOstree
from nodeagent.host.rpmostree.timing import Timing
from nodeagent.host.systemd import Systemd
from tests.host.conftest import PrivateBus
from tests.host.fake_systemd import FakeSystemd

NEW = f"quay.io/org/os@sha256:{'1' * 64}"
IMAGE = OsTarget(image=parse_image(NEW))
QUICK = Timing(
    call=1.5,
    short=1,
    connect=0.3,
    stall=1,
    total=5,
    cancel=0.3,
    leave=0.3,
    restart=2,
    busy=0.6,
    busy_pause=0.05,
    busy_pause_max=0.1,
    retry_pause=0.05,
    unlock=2,
)
INACTIVE = {"ActiveState": Variant("s", "inactive")}


def adapter(private_bus: PrivateBus, systemd: Systemd, root: Path, **more: Any) -> RpmOstree:
    more = {"min_free": 0, "timing": QUICK} | more
    return RpmOstree(systemd, make_bus=lambda: Bus(private_bus.address, connect_for=1), root=root, **more)


def quiet(manager: FakeSystemd) -> FakeSystemd:
    """No other driver runs."""
    for unit in ("zincati.service", "bootc-fetch-apply-updates.timer", "ostree-boot-complete.service"):
        manager.units[unit] = dict(INACTIVE)
    return manager


class Told(list[StageProgress]):
    def tasks(self) -> list[str]:
        return [one.task for one in self]
