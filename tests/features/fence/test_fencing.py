# SPDX-License-Identifier: Apache-2.0
"""The fence around a staging: its place in an update, and its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import Retryable
from nodeagent.features.fence.decide.bounds import Idle
from nodeagent.features.fence.decide.view import FenceEvent, FenceView
from nodeagent.features.fence.events import FenceChanged
from nodeagent.features.fence.fence import ActiveFence, FenceOptions
from nodeagent.features.fence.guard import FenceGuard
from nodeagent.features.fence.host_fence import HostFence, recover
from nodeagent.features.fence.restore_log import RestoreLog
from nodeagent.features.fence.sensors.sensors import Protected
from nodeagent.features.fence.settings import FenceSettings
from nodeagent.host.clock import SystemClock
from nodeagent.host.dbus.client import Bus
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.report.status_json import status_to_dict
from nodeagent.update.history.trail import trail_from_dict
from nodeagent.update.ports.events import StagingAdvanced, UpdateContext
from nodeagent.update.ports.system import StagingUnit
from tests.world import Fault
from tests.world.os_host import NEW, at_old

UP = FenceView(True, "started", "an update is about to be staged", 16_000_000, 489)
OPEN = replace(UP, reason="calm", message="probe: 0 of 20 fsyncs over 8 ms", write_bps=None, write_iops=None)

LATENCY = {"wal_fsync": {"during": {"samples": 500, "slow": 2, "p99_ms": 15.9}}}


class Around:
    """A port that notes when it is up."""

    def __init__(self) -> None:
        self.up = False
        self.times = 0

    @asynccontextmanager
    async def around(self, emit: Callable[[FenceEvent], None], _unit: StagingUnit) -> AsyncIterator[None]:
        self.up, self.times = True, self.times + 1
        emit(FenceEvent(UP, "up"))
        try:
            yield
        finally:
            self.up = False
            emit(FenceEvent(None, "gone", etcd_disk=LATENCY))


@pytest.mark.looptime
async def test_it_is_up_while_the_os_is_staged_and_between_two_tries_it_is_not() -> None:
    host = await at_old()
    around = Around()
    host.guards = [FenceGuard(around)]
    host.world.faults.append(Fault("stage", Retryable("no registry", reason=Reason.REGISTRY_UNREACHABLE)))
    seen: dict[str, set[bool]] = {"staging": set(), "else": set()}
    host.want(NEW)
    task = asyncio.create_task(host.settle())
    while not task.done():
        events = [event for event in host.world.events if not isinstance(event, FenceChanged)]
        staging = bool(events) and isinstance(events[-1], StagingAdvanced)
        seen["staging" if staging and "Importing" in events[-1].step.name else "else"].add(around.up)
        await asyncio.sleep(0.1)
    await task
    assert seen == {"staging": {True}, "else": {False}}
    assert around.times == 2
    found = [event.message for event in host.world.events if isinstance(event, FenceChanged)]
    assert found == ["up", "gone"] * 2
    assert host.world.history[-1].etcd_disk == LATENCY
    course = trail_from_dict(host.world.history[-1].trail).fence
    assert course is not None and course.samples[-1][1] == UP.write_bps


IDLE = Idle(0.005, 0.02)
NO_BUS = Bus("unix:path=/nowhere")


class Fenced:
    """Stands for the real fence, which has tests of its own (``tests/features/fence``)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.views = [UP, replace(UP, seconds=1.0), OPEN]
        self.left: list[str] = []
        self.options: list[FenceOptions] = []
        self.units: list[str] = []
        self.victims: list[Protected] = []
        self.found: Protected | None = Protected(Path("/var/lib/etcd"))
        monkeypatch.setattr("nodeagent.features.fence.fence.fenced", self.fenced)
        monkeypatch.setattr("nodeagent.features.fence.sensors.sensors.find_etcd", self.find)

    async def find(self) -> Protected | None:
        return self.found

    @asynccontextmanager
    async def fenced(self, unit: str, victim: Protected, **given: Any) -> AsyncIterator[ActiveFence]:
        self.units.append(unit)
        self.options.append(given["options"])
        self.victims.append(victim)
        fence = ActiveFence(given["emit"])
        fence.idle = given["options"].idle or IDLE
        for view in self.views:
            fence.show(view)
        yield fence
        fence.left = self.left


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> Fenced:
    return Fenced(monkeypatch)


UPDATER = StagingUnit("rpm-ostreed.service")


def host_fence(tmp_path: Path, **settings: Any) -> HostFence:
    return HostFence(NO_BUS, FenceSettings(**settings), SystemClock(), tmp_path, tmp_path / "notes")


async def stage(fence: HostFence) -> list[FenceEvent]:
    events: list[FenceEvent] = []
    async with fence.around(events.append, UPDATER):
        pass
    return events


async def test_the_events_of_a_fence(fenced: Fenced, tmp_path: Path) -> None:
    events = await stage(host_fence(tmp_path))
    assert [(each.message, each.routine) for each in events if each.message] == [
        ("active, writes are capped at 16.0 MB/s in 489 requests", False),
        ("probe: 0 of 20 fsyncs over 8 ms; writes are not capped", True),
        ("ended, active for 0 s, writes capped for 0 s, 0 fsyncs of etcd over 100 ms", False),
    ]
    assert events[1] == FenceEvent(fenced.views[1]), "numbers alone are no line"
    assert events[-1].view is None


async def test_the_slice_of_transient_units_is_limited(fenced: Fenced, tmp_path: Path) -> None:
    transient = StagingUnit("pull.service", None, "system-pull.slice")
    for unit in (UPDATER, transient):
        async with host_fence(tmp_path).around(lambda _event: None, unit):
            pass
    assert fenced.units == ["rpm-ostreed.service", "system-pull.slice"]
    assert [options.syncs for options in fenced.options] == ["rpm-ostreed.service", "pull.service"]


async def test_missing_parts_are_reported_once(fenced: Fenced, tmp_path: Path) -> None:
    fence = host_fence(tmp_path)
    fenced.views = [replace(UP, missing=("PSI is off",)), replace(OPEN, missing=("PSI is off",))]
    said = [each.message for _ in range(2) for each in await stage(fence)]
    assert said.count("degraded: PSI is off") == 1


async def test_a_fence_that_is_not_up(fenced: Fenced, tmp_path: Path) -> None:
    fenced.views = [FenceView(False, "NoDisk", "/: on no disk")]
    fence = host_fence(tmp_path)
    events = await stage(fence)
    assert [(each.message, each.reason, each.bad) for each in events if each.message] == [
        ("not active, /: on no disk", "NoDisk", False)
    ]
    assert events[-1] == FenceEvent(None)
    assert not [each for each in await stage(fence) if each.message]


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another release was installed while the daemon runs, and that has no such module."""

    def gone(name: str) -> None:
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr("nodeagent.features.fence.host_fence.import_module", gone)


async def test_a_fence_that_is_not_installed_any_more_fails_nothing(replaced: None, tmp_path: Path) -> None:
    events = [each for each in await stage(host_fence(tmp_path)) if each.message]
    assert [(each.reason, each.bad) for each in events] == [("FenceFailed", True)]
    assert "nodeagent.features.fence.fence" in events[0].message


async def test_a_failed_recovery_is_reported(
    replaced: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await RestoreLog(tmp_path / "notes").save("unit-rpm-ostreed.service", "{}")
    await recover(NO_BUS, tmp_path / "notes")
    assert "FenceNotRecovered" in capsys.readouterr().err


async def test_what_is_left_is_bad(fenced: Fenced, tmp_path: Path) -> None:
    fenced.left = ["rpm-ostreed.service: the kernel still limits its writes"]
    bad = [each for each in await stage(host_fence(tmp_path)) if each.bad]
    assert [(each.reason, each.view) for each in bad] == [("FenceNotRecovered", None)]


async def test_without_etcd_there_is_no_fence(fenced: Fenced, tmp_path: Path) -> None:
    fenced.found = None
    fence = host_fence(tmp_path)
    assert [each.message for each in await stage(fence)] == ["not needed: this host has no member of etcd"]
    assert await stage(fence) == []
    assert fenced.options == []


async def test_always_and_never(fenced: Fenced, tmp_path: Path) -> None:
    fenced.found = None
    await stage(host_fence(tmp_path, enabled="always"))
    assert fenced.victims == [Protected(tmp_path)]
    fenced.found = Protected(Path("/var/lib/etcd"))
    assert await stage(host_fence(tmp_path, enabled="never")) == []


async def test_the_idle_disk_is_not_measured_twice_within_a_quarter_of_an_hour(fenced: Fenced, tmp_path: Path) -> None:
    fence = host_fence(tmp_path)
    await stage(fence)
    await stage(fence)
    assert [options.idle for options in fenced.options] == [None, IDLE]


async def test_the_end_is_reported_after_a_failure_too(fenced: Fenced, tmp_path: Path) -> None:
    events: list[FenceEvent] = []
    with pytest.raises(Retryable):
        async with host_fence(tmp_path).around(events.append, UPDATER):
            raise Retryable("no registry")
    assert events[-1].view is None


async def test_recovering_without_a_bus_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await recover(NO_BUS, tmp_path / "notes")
    assert capsys.readouterr().err == ""
    await RestoreLog(tmp_path / "notes").save("unit-rpm-ostreed.service", "{}")
    await recover(NO_BUS, tmp_path / "notes")
    assert "are still set" in capsys.readouterr().err


def test_the_status_has_it_while_it_is_there() -> None:
    up = fold(Status(), FenceChanged(UpdateContext(Status().phase), UP))
    assert status_to_dict(up, daemon="running")["fence"]["write_bps"] == 16_000_000
    assert status_to_dict(fold(up, FenceChanged(UpdateContext(up.phase), None)), daemon="running")["fence"] is None
