# SPDX-License-Identifier: Apache-2.0
"""A host in a folder, systemd on the private bus, and the adapter that uses both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodeagent.features.bootc.adapter import Bootc
from nodeagent.features.bootc.image import CommitReader
from nodeagent.features.bootc.units import UnitTiming
from nodeagent.host.dbus.client import Bus
from nodeagent.host.systemd import Systemd
from tests.features.bootc.fake_ostree import FakeOstree
from tests.features.bootc.test_image import OSTREE
from tests.host.fake_systemd import FakeSystemd
from tests.host.ostree.fake_sysroot import A, B, C, FakeSysroot
from tests.support.fixtures import PrivateBus, bus, no_leaked_fds, private_bus

__all__ = ["bus", "no_leaked_fds", "private_bus"]

QUICK = UnitTiming(
    complete=5, restart=5, retry_pause=0.05, unlock=5, redeploy=5, total=60, stop=1, check=5, busy=0.2, busy_pause=0.05,
    stall=30, look=0.05,
)  # fmt: skip


@pytest.fixture
def host(tmp_path: Path) -> FakeSysroot:
    host = FakeSysroot(tmp_path)
    host.write()
    host.commit(A, f"sha256:{'0' * 64}", "41.1.0")
    (tmp_path / "sysroot").mkdir()
    return host


@pytest.fixture
async def ostree(private_bus: PrivateBus, host: FakeSysroot) -> AsyncIterator[FakeOstree]:
    async with FakeSystemd() as systemd:
        await systemd.start(private_bus.address)
        yield FakeOstree(systemd, host)


@pytest.fixture
def os(private_bus: PrivateBus, bus: Bus, ostree: FakeOstree) -> Bootc:
    make_bus = lambda: Bus(private_bus.address, connect_for=2, patience=20)  # noqa: E731
    root = ostree.sysroot.root
    program = root / "ostree-of-commits"
    program.write_text(OSTREE)
    program.chmod(0o755)
    (root / f"ostree/repo/{B}/usr/lib").mkdir(parents=True)
    (root / f"ostree/repo/{C}/usr/lib").mkdir(parents=True)
    commits = CommitReader(root / "ostree/repo", str(program))
    return Bootc(Systemd(bus), make_bus=make_bus, root=root, min_free=0, timing=QUICK, commits=commits)
