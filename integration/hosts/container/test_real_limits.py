# SPDX-License-Identifier: Apache-2.0
"""Limits of a unit, as the real systemd takes, keeps and drops them. What the kernel makes of them is for the virtual
machine: a container on a host of cgroup v1 has no io controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from integration.hosts.container.container_host import Host
from integration.hosts.container.test_real_bus import address
from nodeagent.features.fence.actuators.cgroup import UnitIo, recover
from nodeagent.features.fence.decide.disks import BlockNode, DeviceNumber
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.host.dbus.client import Bus

DISK = BlockNode(DeviceNumber(254, 0), "/dev/vda")
UNIT = "limited.service"
PROPERTIES = ("IOWriteBandwidthMax", "IOWriteIOPSMax")


def shown(host: Host) -> dict[str, str]:
    lines = host.run(["systemctl", "show", UNIT, *(f"--property={name}" for name in PROPERTIES)]).stdout.splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines) if name}


async def test_limits_of_a_unit(host: Host, tmp_path: Path) -> None:
    admin = "[Service]\nExecStart=/bin/sleep infinity\nIOWriteBandwidthMax=/dev/vdb 5M\n"
    host.write(f"/etc/systemd/system/{UNIT}", admin)
    host.run(["systemctl", "daemon-reload"])
    # The controllers that the kernel has are another matter; the unit runs later.
    (tmp_path / "cgroup.controllers").write_text("io\n")
    before = shown(host)
    restore_log = RestoreLog(tmp_path / "restore_log")

    async def check(unit: UnitIo, **expected: Any) -> None:
        for name, value in expected.items():
            assert await unit._get(name) == value

    async with Bus(address(host)) as bus:
        unit = UnitIo(bus, restore_log, UNIT, tmp_path)
        await unit.begin()
        await unit.hold(DISK, None, 120)
        await check(unit, IOWriteIOPSMax=[["/dev/vda", 120]])
        await check(unit, IOWriteBandwidthMax=[["/dev/vdb", 5_000_000]])
        await unit.hold(DISK, 8_000_000, None)
        await check(unit, IOWriteIOPSMax=[])
        assert dict(await unit._get("IOWriteBandwidthMax")) == {"/dev/vdb": 5_000_000, "/dev/vda": 8_000_000}
        assert await recover(bus, restore_log, tmp_path) == [UNIT]
    assert shown(host) == before
    assert await restore_log.load() == {}
