# SPDX-License-Identifier: Apache-2.0
"""The drop-in for rpm-ostreed, against a manager with systemd's habits. That it is mounted is seen in ring 4."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dbus_next import Variant

from nodeagent.errors import AgentError, Retryable
from nodeagent.features.fence.actuators.object_fsync import ObjectFsync, units_left
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.host.dbus.client import Bus
from tests.host.fake_systemd import FakeSystemd
from tests.support.fixtures import PrivateBus

UNIT = "rpm-ostreed.service"
REPO = "[core]\nmode=bare\n"


class Host:
    def __init__(self, directory: Path, bus: Bus, systemd: FakeSystemd) -> None:
        self.bus = bus
        self.systemd = systemd
        self.config = directory / "config"
        self.config.write_text(REPO)
        self.copy = directory / "run/copy"
        self.units = directory / "units"
        self.restore_log = RestoreLog(directory / "restore_log")
        self.jobs: list[str] = []
        self.reloads = 0
        systemd.files[UNIT] = "static"
        systemd.job_script = self._job

    async def _job(self, job: int, unit: str) -> None:
        self.jobs.append(unit)
        self.systemd.properties["InvocationID"] = Variant("ay", bytes(reversed(range(16))))
        await self.systemd.finish(job, unit, "done")

    def fsync(self) -> ObjectFsync:
        return ObjectFsync(self.bus, self.restore_log, UNIT, config=self.config, units=self.units, copy=self.copy)

    @property
    def drop_in(self) -> Path:
        return self.units / f"{UNIT}.d/50-nodeagent-fence.conf"


@pytest.fixture
async def host(private_bus: PrivateBus, bus: Bus, tmp_path: Path) -> AsyncIterator[Host]:
    async with FakeSystemd() as systemd:
        await systemd.start(private_bus.address)
        yield Host(tmp_path, bus, systemd)


async def idle() -> bool:
    return False


async def busy() -> bool:
    return True


async def test_a_daemon_that_does_not_run_needs_no_restart(host: Host) -> None:
    host.systemd.properties["ActiveState"] = Variant("s", "inactive")
    await host.fsync().begin(idle)
    assert host.drop_in.read_text() == f"[Service]\nBindReadOnlyPaths=-{host.copy}:{host.config}\n"
    assert "per-object-fsync=true" in host.copy.read_text()
    assert host.config.read_text() == REPO
    assert host.jobs == []
    assert units_left(await host.restore_log.load()) == [UNIT]
    await host.fsync().end()
    assert not host.drop_in.exists()
    assert await host.restore_log.load() == {}


async def test_a_daemon_that_idles_is_started_again(host: Host) -> None:
    await host.fsync().begin(idle)
    assert host.jobs == [UNIT]


async def test_a_daemon_that_works_is_left_alone(host: Host) -> None:
    with pytest.raises(Retryable) as caught:
        await host.fsync().begin(busy)
    assert caught.value.reason == "UpdaterBusy"
    assert (host.jobs, host.drop_in.exists(), await host.restore_log.load()) == ([], False, {})


@pytest.mark.parametrize("text", ["[core]\nper-object-fsync=true\n", "[core]\nfsync=false\n"])
async def test_what_is_so_already_is_no_work(host: Host, text: str) -> None:
    host.config.write_text(text)
    await host.fsync().begin(idle)
    await host.fsync().end()
    assert (host.jobs, host.copy.exists(), await host.restore_log.load()) == ([], False, {})


async def test_without_a_repository(host: Host) -> None:
    host.config.unlink()
    with pytest.raises(AgentError):
        await host.fsync().begin(idle)
    assert await host.restore_log.load() == {}
