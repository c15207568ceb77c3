# SPDX-License-Identifier: Apache-2.0
"""Which adapters the settings build, and that nothing is loaded that is not configured."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from nodeagent.agent import compose
from nodeagent.agent.report.report import Report
from nodeagent.core.coordination.lease import Claim, LeaseToken
from nodeagent.errors import InvalidInput, Refused, Terminal
from nodeagent.host.clock import SystemClock
from nodeagent.host.lease import TOKEN_NOTE, StoredToken
from nodeagent.host.store.store import SqliteStore
from nodeagent.kube.cluster import Cluster
from nodeagent.kube.mco_drain import EitherDrain
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.settings.check import window_schedule
from nodeagent.settings.cluster import ClusterSettings, DrainSettings, WindowSettings
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.schema import Settings
from nodeagent.update.stages.coordination import Coordination, Operation
from tests.world import FakeClock, FakeLease, World
from tests.world.cluster_host import fresh

MACHINE_ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def machine_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "machine-id"
    path.write_text(MACHINE_ID + "\n")
    monkeypatch.setattr(compose, "MACHINE_ID", path)
    return path


def connected(tmp_path: Path, settings: Settings) -> tuple[Cluster | None, Coordination]:
    store, clock = SqliteStore(tmp_path / "s/state.db"), SystemClock()
    cluster = compose.connect(settings, store, clock, lambda _: None)
    return cluster, compose.coordinate(settings, store, clock, cluster, Report(Status()))


def test_a_host_alone_has_a_local_lease(tmp_path: Path) -> None:
    cluster, coordination = connected(tmp_path, Settings())
    assert (cluster, coordination.lease.backend, coordination.slot) == (None, "local", None)


def test_in_a_cluster(tmp_path: Path) -> None:
    """No request is sent: the kubeconfig does not exist."""
    settings = Settings(
        node_name="worker-1",
        cluster=ClusterSettings(kubeconfig="/nowhere"),
    )
    cluster, coordination = connected(tmp_path, settings)
    assert (coordination.lease.backend, coordination.slot) == ("kubernetes", None)
    assert cluster is not None
    assert cluster.drainer is cluster.node
    bare, coordination = connected(tmp_path, Settings(cluster=ClusterSettings(service_account="/nowhere")))
    assert (coordination.lease.backend, bare is not None) == ("kubernetes", True)


@pytest.mark.parametrize(("by", "controller"), [("auto", None), ("self", False), ("controller", True)])
def test_a_controller_may_drain_where_the_cluster_is_the_source(
    tmp_path: Path, by: Literal["auto", "self", "controller"], controller: bool | None
) -> None:
    settings = ClusterSettings(kubeconfig="/nowhere", source="cluster")
    cluster, _ = connected(tmp_path, Settings(cluster=settings))
    assert cluster is not None
    assert cluster.controls_node
    assert isinstance(cluster.drainer, EitherDrain)
    cluster.use(Settings(cluster=settings, drain=DrainSettings(by=by)))
    assert cluster.drainer.controller is controller


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (ClusterSettings(kubeconfig="/a", service_account="/b"), "not both"),
        (ClusterSettings(source="cluster"), "needs a cluster"),
    ],
)
def test_contradictions(cluster: ClusterSettings, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        check_consistency(Settings(cluster=cluster))
    assert caught.value.reason == "SettingsInvalid"


@pytest.mark.parametrize(
    ("cluster", "drain", "words"),
    [
        (ClusterSettings(kubeconfig="/a"), DrainSettings(lead_time=60, timeout=60), "part of drain.timeout"),
        (ClusterSettings(kubeconfig="/a", source="cluster"), DrainSettings(lead_time=60), "need drain.by: self"),
        (ClusterSettings(kubeconfig="/a", source="cluster"), DrainSettings(first=("a",)), "need drain.by: self"),
        (
            ClusterSettings(kubeconfig="/a", source="cluster"),
            DrainSettings(by="controller", last=("a",)),
            "need drain.by: self",
        ),
    ],
)
def test_a_drain_that_contradicts_itself(cluster: ClusterSettings, drain: DrainSettings, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        check_consistency(Settings(cluster=cluster, drain=drain))
    check_consistency(Settings(cluster=cluster, drain=msgspec.structs.replace(drain, by="self", lead_time=0)))


def test_a_host_without_a_machine_id_joins_no_fleet(tmp_path: Path, machine_id: Path) -> None:
    machine_id.write_text("uninitialized")
    with pytest.raises(Terminal) as caught:
        connected(tmp_path, Settings(cluster=ClusterSettings(kubeconfig="/a")))
    assert caught.value.reason == "NoMachineId"


def test_windows() -> None:
    assert window_schedule(WindowSettings()) is None
    found = window_schedule(WindowSettings(open=("sat,sun 22:30 120", "05:00 60"), zone="Europe/Prague"))
    assert found is not None
    assert found.is_open(datetime(2026, 7, 4, 21, tzinfo=UTC))  # Saturday, 23:00 there
    assert not found.is_open(datetime(2026, 7, 3, 21, tzinfo=UTC))
    assert found.is_open(datetime(2026, 7, 3, 3, 30, tzinfo=UTC))
    with pytest.raises(InvalidInput):
        window_schedule(WindowSettings(zone="Europe/Nowhere"))
    with pytest.raises(InvalidInput) as twice:
        window_schedule(WindowSettings(open=("nights = 22:30 60", "nights = 02:00 60")))
    assert (twice.value.reason, twice.value.message) == (
        "SettingsInvalid",
        "windows.open: two windows have the name nights",
    )


async def test_the_token_of_a_lease_outlives_the_process(tmp_path: Path) -> None:
    token = LeaseToken(Claim("nodeagent", "u1", "update", "host-a"), "uid", 3)
    async with SqliteStore(tmp_path / "s/state.db") as store:
        kept = StoredToken(store)
        assert await kept.load() is None
        await kept.save(token)
    async with SqliteStore(tmp_path / "s/state.db") as store:
        kept = StoredToken(store)
        assert await kept.load() == token
        await kept.save(None)
        assert await kept.load() is None
        await store.keep_note(TOKEN_NOTE, '{"uid": 1}')
        with pytest.raises(Terminal) as caught:
            await kept.load()
        assert caught.value.reason == "StoreCorrupt"


def test_nothing_of_kubernetes_is_loaded_without_a_cluster() -> None:
    code = (
        "import sys; import nodeagent.agent.daemon;"
        "print([m for m in sys.modules if m.split('.')[0] in ('kubernetes', 'aiohttp')"
        " or m.startswith('nodeagent.kube')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


async def test_everything_is_acquired_in_order_and_released_in_reverse() -> None:
    host = fresh()
    coordination, update = host.ports().coordination, Operation("u1", "nodeagent", "update")
    await coordination.acquire(update)
    assert host.around.hook
    await coordination.release(update)
    assert host.around.log == ["slot", "lease", "release lease", "release slot"]
    assert not host.around.hook


async def test_a_reservation_is_checked_before_a_slot_is_taken() -> None:
    host = fresh()
    coordination = host.ports().coordination
    coordination.reserve("maintenance.1", "jane waits for the lease")
    with pytest.raises(Refused, match="jane waits for the lease"):
        await coordination.acquire(Operation("u1", "nodeagent", "update"))
    assert host.around.log == []
    await coordination.acquire(Operation("maintenance.1", "jane", "disks", queued=False))
    assert host.around.log == ["lease"], "an operator needs no slot"


async def test_an_actor_that_comes_in_between_leaves_nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    host = fresh()
    coordination = host.ports().coordination
    acquire = FakeLease.acquire

    async def then_leaves(self: FakeLease, holder: str, operation: str, reason: str) -> None:
        await acquire(self, holder, operation, reason)
        host.around.gate = Refused("the Node is being deleted", reason=Reason.NODE_LEAVING)

    monkeypatch.setattr(FakeLease, "acquire", then_leaves)
    with pytest.raises(Refused):
        await coordination.acquire(Operation("u1", "nodeagent", "update"))
    assert host.around.log == ["slot", "lease", "release lease", "release slot"]
    assert host.world.holder is None


async def test_each_guard_must_permit_a_stop() -> None:
    calls: list[str] = []

    @dataclass
    class Watched:
        name: str
        refuses: bool = False

        async def permit_stop(self) -> None:
            calls.append(self.name)
            if self.refuses:
                raise Refused(self.name, reason=Reason.ETCD_QUORUM_AT_RISK)

        async def before_stop(self) -> None:
            await self.permit_stop()

    world = World()
    guards = [Watched("a"), Watched("b", refuses=True), Watched("c")]
    coordination = Coordination(FakeLease(world), FakeClock(world), guards=guards)
    for stop in (coordination.permit_stop, coordination.before_stop):
        with pytest.raises(Refused, match="b"):
            await stop()
    assert calls == ["a", "b", "a", "b"]
