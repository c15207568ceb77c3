# SPDX-License-Identifier: Apache-2.0
"""IoLimits of a unit: against a manager with systemd's habits, and a cgroup that it writes to a moment later."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodeagent.errors import AgentError
from nodeagent.features.fence.actuators import cgroup
from nodeagent.features.fence.actuators.cgroup import UnitIo, parse_io_max, recover
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.host.dbus.client import Bus
from tests.features.fence.fake_limits import CGROUP, DISK, INFINITY, KEYS, UNIT, Manager
from tests.support.fixtures import PrivateBus


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    root = tmp_path / "cgroup"
    (root / CGROUP.lstrip("/")).mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    return root


@pytest.fixture
async def manager(private_bus: PrivateBus, cgroups: Path) -> AsyncIterator[Manager]:
    manager = Manager(cgroups)
    async with manager:
        await manager.start(private_bus.address)
        yield manager


@pytest.fixture
def restore_log(tmp_path: Path) -> RestoreLog:
    return RestoreLog(tmp_path / "restore_log")


async def test_limits_are_held_and_taken_back(
    bus: Bus, manager: Manager, restore_log: RestoreLog, cgroups: Path
) -> None:
    unit = UnitIo(bus, restore_log, UNIT, cgroups)
    await unit.begin()
    await unit.hold(DISK, None, 120)
    assert manager.io_max == "254:0 rbps=max wbps=max riops=max wiops=120\n"
    await unit.hold(DISK, 8_000_000, None)
    assert manager.io_max == "254:0 rbps=max wbps=8000000 riops=max wiops=max\n"
    await unit.end()
    assert manager.io_max == ""
    assert manager.lists == {name: {} for name in KEYS}
    assert await restore_log.load() == {}
    assert {(unit, runtime) for unit, runtime, _ in manager.sent} == {(UNIT, True)}
    assert manager.signatures == {(name, "a(st)") for name in KEYS}
    assert manager.sent[0][2] == [
        ("IOWriteBandwidthMax", [["/dev/vda", INFINITY]]),
        ("IOWriteIOPSMax", [["/dev/vda", 120]]),
    ]
    assert manager.sent[-1][2] == [("IOWriteBandwidthMax", [])], "what is as it was found is not written again"


async def test_what_an_admin_set_comes_back(bus: Bus, manager: Manager, restore_log: RestoreLog, cgroups: Path) -> None:
    manager.lists["IOWriteBandwidthMax"] = {"/dev/sdb": 5_000_000}
    unit = UnitIo(bus, restore_log, UNIT, cgroups)
    await unit.begin()
    await unit.hold(DISK, 8_000_000, None)
    await unit.end()
    assert manager.lists == {"IOWriteBandwidthMax": {"/dev/sdb": 5_000_000}, "IOWriteIOPSMax": {}}


async def test_after_a_kill(bus: Bus, manager: Manager, restore_log: RestoreLog, cgroups: Path) -> None:
    killed = UnitIo(bus, restore_log, UNIT, cgroups)
    await killed.begin()
    await killed.hold(DISK, None, 120)
    again = UnitIo(bus, restore_log, UNIT, cgroups)
    await again.begin()  # the note of the first one is the one that counts
    assert await recover(bus, restore_log, cgroups) == [UNIT]
    assert manager.io_max == ""
    assert await recover(bus, restore_log, cgroups) == []


async def test_killed_before_anything_was_changed(
    bus: Bus, manager: Manager, restore_log: RestoreLog, cgroups: Path
) -> None:
    await UnitIo(bus, restore_log, UNIT, cgroups).begin()
    await recover(bus, restore_log, cgroups)
    assert manager.sent == []


async def test_a_unit_that_does_not_run(bus: Bus, manager: Manager, restore_log: RestoreLog, cgroups: Path) -> None:
    manager.running = False
    unit = UnitIo(bus, restore_log, UNIT, cgroups)
    await unit.begin()
    await unit.hold(DISK, None, 120)
    assert manager.lists["IOWriteIOPSMax"] == {"/dev/vda": 120}, "for its next start"
    await unit.end()
    assert manager.lists["IOWriteIOPSMax"] == {}


async def test_a_limit_that_the_kernel_does_not_hold(
    bus: Bus, manager: Manager, restore_log: RestoreLog, cgroups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "_AGREES_WITHIN", 0.1)
    manager.stubborn = True
    unit = UnitIo(bus, restore_log, UNIT, cgroups)
    await unit.begin()
    with pytest.raises(AgentError, match="the kernel has nothing") as caught:
        await unit.hold(DISK, None, 120)
    assert caught.value.reason == "LimitNotHeld"
    (manager.cgroup / "io.max").write_text("254:0 rbps=max wbps=1 riops=max wiops=max\n")
    with pytest.raises(AgentError, match="wbps=1") as caught:
        await unit.end()
    assert caught.value.reason == "LimitsNotReset"
    assert await restore_log.load(), "the next start tries again"


@pytest.mark.parametrize("controllers", [None, "cpu memory pids\n"])
async def test_without_io_control(bus: Bus, restore_log: RestoreLog, cgroups: Path, controllers: str | None) -> None:
    file = cgroups / "cgroup.controllers"
    file.unlink() if controllers is None else file.write_text(controllers)
    with pytest.raises(AgentError) as caught:
        await UnitIo(bus, restore_log, UNIT, cgroups).begin()
    assert caught.value.reason == "NoIoControl"
    assert await restore_log.load() == {}


@pytest.mark.parametrize("note", ["{", "[]", "{}", json.dumps({"IOWriteBandwidthMax": 7})])
async def test_a_note_that_cannot_be_read(
    bus: Bus, manager: Manager, restore_log: RestoreLog, cgroups: Path, note: str
) -> None:
    await restore_log.save(f"unit-{UNIT}", note)
    with pytest.raises(AgentError) as caught:
        await UnitIo(bus, restore_log, UNIT, cgroups).end()
    assert caught.value.reason == "LimitsNotReset"


def test_io_max() -> None:
    text = "8:0 rbps=max wbps=2097152 riops=max wiops=max\n259:1 rbps=1 wbps=max riops=2 wiops=120\n"
    assert parse_io_max(text) == {"8:0": {"wbps": 2097152}, "259:1": {"rbps": 1, "riops": 2, "wiops": 120}}
    assert parse_io_max("") == {}
