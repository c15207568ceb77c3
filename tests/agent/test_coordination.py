"""What the settings make of who else has a say; and that nothing is loaded that is not set up."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest

from nodeagent.agent.coordination import FleetLockSlots, Others, others
from nodeagent.agent.report.report import Report
from nodeagent.agent.update.run import Fleet, Ports
from nodeagent.core.coordination.lease import Claim, LeaseToken
from nodeagent.core.report.status import Status
from nodeagent.core.update.events import EventKind
from nodeagent.core.update.phase import Phase
from nodeagent.errors import InvalidInput, Terminal
from nodeagent.host.clock import SystemClock
from nodeagent.host.fleetlock import FleetLock
from nodeagent.host.store.store import SqliteStore
from nodeagent.host.token import KEY, StoredToken
from nodeagent.kube.mco_drain import EitherDrain
from nodeagent.settings.cluster import ClusterSettings, DrainSettings, SlotSettings, WindowSettings
from nodeagent.settings.schema import Settings
from nodeagent.settings.windows import window_schedule
from tests.host.test_fleetlock import FleetServer, serving
from tests.world.fakes import FakeUnit, World
from tests.world.harness import LIMITS, Host, config

MACHINE_ID = "0123456789abcdef0123456789abcdef"


def made(tmp_path: Path, settings: Settings, *, machine_id: str = MACHINE_ID, controls_node: bool = False) -> Others:
    path = tmp_path / "machine-id"
    path.write_text(machine_id + "\n")
    store = SqliteStore(tmp_path / "s/state.db")
    return others(
        settings, store, SystemClock(), boot_id="b", controls_node=controls_node, tell=lambda _: None, machine_id=path
    )


def test_a_host_alone_has_a_local_lease_and_the_guard(tmp_path: Path) -> None:
    say = made(tmp_path, Settings())
    assert (say.lease.backend, say.node, say.cluster) == ("local", None, None)
    assert (say.fleet.slot, say.fleet.staging_slot, say.fleet.gates) == (None, None, None)
    assert say.fleet.guard is not None


def test_a_fleet_without_a_cluster_has_slots(tmp_path: Path) -> None:
    say = made(tmp_path, Settings(slots=SlotSettings(fleetlock="https://lock.example")))
    assert isinstance(say.fleet.slot, FleetLockSlots)
    assert say.lease.backend == "local"


def test_in_a_cluster(tmp_path: Path) -> None:
    """Without asking it anything: the kubeconfig is not even there."""
    settings = Settings(
        node_name="worker-1",
        cluster=ClusterSettings(kubeconfig="/nowhere"),
        slots=SlotSettings(pool="workers", max_staging=3),
    )
    say = made(tmp_path, settings)
    assert say.lease.backend == "kubernetes"
    assert say.cluster is not None
    assert (say.node, say.fleet.gates) == (say.cluster.node, say.cluster.gates)
    assert None not in (say.fleet.slot, say.fleet.staging_slot)
    bare = made(tmp_path, Settings(cluster=ClusterSettings(service_account="/nowhere")))
    assert (bare.fleet.slot, bare.fleet.staging_slot) == (None, None)


@pytest.mark.parametrize(("by", "controller"), [("auto", None), ("self", False), ("controller", True)])
def test_where_the_cluster_says_what_is_desired_a_controller_may_drain(
    tmp_path: Path, by: Literal["auto", "self", "controller"], controller: bool | None
) -> None:
    cluster = ClusterSettings(kubeconfig="/nowhere", source="cluster")
    say = made(tmp_path, Settings(cluster=cluster), controls_node=True)
    assert isinstance(say.node, EitherDrain)
    say.use(Settings(cluster=cluster, drain=DrainSettings(by=by)))
    assert say.node.controller is controller
    store, report = SqliteStore(tmp_path / "s/state.db"), Report(Status())
    assert say.cluster is not None

    async def nothing(_source: object) -> None: ...

    assert say.cluster.ordered(store, report, lambda _: None, nothing) is not None
    alone = made(tmp_path, Settings(cluster=ClusterSettings(kubeconfig="/nowhere")))
    assert alone.cluster is not None
    assert alone.cluster.ordered(store, report, lambda _: None, nothing) is None


@pytest.mark.parametrize(
    ("cluster", "slots", "words"),
    [
        (ClusterSettings(kubeconfig="/a", service_account="/b"), SlotSettings(), "not both"),
        (ClusterSettings(), SlotSettings(pool="workers"), "needs a cluster"),
        (ClusterSettings(source="cluster"), SlotSettings(), "needs a cluster"),
        (ClusterSettings(kubeconfig="/a"), SlotSettings(fleetlock="https://l"), "without a cluster"),
    ],
)
def test_contradictions(tmp_path: Path, cluster: ClusterSettings, slots: SlotSettings, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        made(tmp_path, Settings(cluster=cluster, slots=slots))
    assert caught.value.reason == "SettingsInvalid"


def test_a_host_without_an_id_has_no_place_in_a_fleet(tmp_path: Path) -> None:
    with pytest.raises(Terminal) as caught:
        made(tmp_path, Settings(cluster=ClusterSettings(kubeconfig="/a")), machine_id="uninitialized")
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


class OfFleet(Host):
    """A host without a cluster whose slots are a server's."""

    def __init__(self, server: FleetServer, machine: str) -> None:
        super().__init__(World(units={"app.service": FakeUnit()}), replace(LIMITS, settle=0.01, lease_retry=0.05))
        self.slots = FleetLockSlots(FleetLock(server.url, machine))

    def ports(self) -> Ports:
        return replace(super().ports(), fleet=Fleet(slot=self.slots))


async def test_a_fleet_of_two_with_one_slot() -> None:
    async with serving(FleetServer(full=423)) as server:
        first, second = OfFleet(server, "1" * 32), OfFleet(server, "2" * 32)
        first.world.units["app.service"].fail_restarts = 1
        first.limits = replace(first.limits, may_reboot=False, revert=False)
        first.want(config("a", {"/etc/app/x": "1"}))
        await first.settle()
        assert first.phase is Phase.DEGRADED
        assert server.held == {"default": {"1" * 32}}, "a host that failed keeps its slot"
        second.want(config("a", {"/etc/app/x": "1"}))
        task = asyncio.create_task(second.settle())
        while not (waiting := [e for e in second.world.events if e.kind is EventKind.WAITING]):
            await asyncio.sleep(0.01)
        assert (waiting[0].reason, second.world.holder) == ("SlotHeld", None)
        first.want(config("b", {"/etc/app/x": "2"}))
        await first.settle()
        await task
        assert {first.phase, second.phase} == {Phase.IDLE}
        assert server.held == {"default": set()}


async def test_the_token_of_a_lease_outlives_the_process(tmp_path: Path) -> None:
    token = LeaseToken(Claim("nodeagent", "u1", "update", "host-a"), "uid", 3, "boot-1", rebooting=True)
    async with SqliteStore(tmp_path / "s/state.db") as store:
        kept = StoredToken(store)
        assert await kept.load() is None
        await kept.save(token)
    async with SqliteStore(tmp_path / "s/state.db") as store:
        kept = StoredToken(store)
        assert await kept.load() == token
        await kept.save(None)
        assert await kept.load() is None
        await store.keep_note(KEY, '{"uid": 1}')
        with pytest.raises(Terminal) as caught:
            await kept.load()
        assert caught.value.reason == "StoreCorrupt"


def test_nothing_of_kubernetes_is_loaded_without_a_cluster() -> None:
    code = (
        "import sys; import nodeagent.agent.daemon;"
        "print([m for m in sys.modules if m.split('.')[0] in ('kubernetes', 'aiohttp')"
        " or m.startswith(('nodeagent.kube', 'nodeagent.host.etcd', 'nodeagent.host.fleetlock'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
