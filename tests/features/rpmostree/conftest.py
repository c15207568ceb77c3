# SPDX-License-Identifier: Apache-2.0
"""rpm-ostreed and systemd on the private bus, and the adapter that uses them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodeagent.features.rpmostree.adapter import RpmOstree
from nodeagent.host.dbus.client import Bus
from nodeagent.host.systemd import Systemd
from tests.features.rpmostree.adapters import adapter, quiet
from tests.features.rpmostree.fake_rpmostree import FakeRpmOstree
from tests.host.fake_systemd import FakeSystemd
from tests.support.fixtures import PrivateBus, bus, no_leaked_fds, private_bus

__all__ = ["bus", "no_leaked_fds", "private_bus"]


@pytest.fixture
async def manager(private_bus: PrivateBus) -> AsyncIterator[FakeSystemd]:
    async with quiet(FakeSystemd()) as manager:
        await manager.start(private_bus.address)
        yield manager


@pytest.fixture
async def daemon(private_bus: PrivateBus, tmp_path: Path) -> AsyncIterator[FakeRpmOstree]:
    async with FakeRpmOstree(tmp_path) as daemon:
        await daemon.start(private_bus.address)
        yield daemon


@pytest.fixture
def model(tmp_path: Path) -> FakeRpmOstree:
    """Return the files of a host whose rpm-ostreed is not on the bus."""
    return FakeRpmOstree(tmp_path)


@pytest.fixture
def os(private_bus: PrivateBus, bus: Bus, manager: FakeSystemd, daemon: FakeRpmOstree) -> RpmOstree:
    return adapter(private_bus, Systemd(bus), daemon.root)
