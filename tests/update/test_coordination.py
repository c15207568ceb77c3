# SPDX-License-Identifier: Apache-2.0
"""Which adapters the settings build, and that nothing is loaded that is not configured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeagent.agent import compose
from nodeagent.agent.report.report import Report
from nodeagent.errors import InvalidInput, Refused
from nodeagent.host.clock import SystemClock
from nodeagent.host.store.store import SqliteStore
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.settings.cluster import ClusterSettings
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.schema import Settings
from nodeagent.update.stages.coordination import Coordination, Operation
from tests.world import FakeLease, World
from tests.world.cluster_host import fresh

MACHINE_ID = "0123456789abcdef0123456789abcdef"


def test_a_host_alone_has_a_local_lease(tmp_path: Path) -> None:
    store, clock = SqliteStore(tmp_path / "s/state.db"), SystemClock()
    assert compose.connect(Settings(), clock) is None
    coordination, backend = compose.coordinate(Settings(), store, clock, None, Report(Status()))
    assert (coordination.lease.backend, coordination.slot, coordination.node, backend) == ("local", None, None, None)


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
    coordination = Coordination(FakeLease(world), guards=guards)
    for stop in (coordination.permit_stop, coordination.before_stop):
        with pytest.raises(Refused, match="b"):
            await stop()
    assert calls == ["a", "b", "a", "b"]


@dataclass
class Needed:
    """A guard that needs the pods of this node, and what it was asked."""

    held: list[bool]
    world: World

    async def permit_begin(self, work: str, options: Mapping[str, str]) -> None:
        assert (work, dict(options)) == ("update to b", {"x": "y"})
        self.held.append(self.world.holder is not None)

    async def permit_stop(self) -> None:
        pass

    before_stop = permit_stop


@pytest.mark.parametrize("stops_pods", [False, True])
async def test_what_stops_pods_is_asked_for_before_the_lease_and_with_it(stops_pods: bool) -> None:
    world = World()
    guard = Needed([], world)
    coordination = Coordination(FakeLease(world), guards=[guard])
    operation = Operation("u1", "nodeagent", "update to b", stops_pods=stops_pods, options={"x": "y"})
    await coordination.acquire(operation)
    assert guard.held == ([False, True] if stops_pods else [])
    await coordination.recheck(operation)
    assert len(guard.held) == (2 if stops_pods else 0), "not once the work has begun"
