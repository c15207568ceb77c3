# SPDX-License-Identifier: Apache-2.0
"""The cordon of an update that ended half-way, on the Node of a real API server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.other_holders import client_of, lease_of
from integration.cluster.sim_node import QUICK, SimNode
from integration.cluster.test_drain import Scene, hurry
from nodeagent.core.coordination.kube_time import parse_time, seconds_time
from nodeagent.features.cluster.drain import CORDONED_BY
from nodeagent.features.cluster.node import KubeReadiness
from nodeagent.features.uncordon import degraded_node
from nodeagent.features.uncordon.degraded_node import DegradedNode, DegradedUncordoned
from nodeagent.host.clock import SystemClock
from nodeagent.kube.client import KubeClient
from nodeagent.update.states import Phase
from tests.world import FakeUnit
from tests.world.run import config

BEFORE = config("before", {"/etc/moved": "1"})
FAILS = config("after", {"/etc/moved": "2"})
REPAIRS = config("repair", {"/etc/moved": "3"})

__all__ = ["hurry"]
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(degraded_node, "PERIOD", 0.2)


@dataclass
class Degraded:
    """A drained node whose update failed half-way."""

    scene: Scene
    member: SimNode
    node: DegradedNode

    async def rests(self) -> None:
        """The node rests, for as many checks as it takes, ten at most."""
        for _ in range(10):
            if (delay := await self.node.rest()) is None:
                return
            await asyncio.sleep(delay)

    def ready(self, status: str) -> None:
        at = parse_time(SystemClock().now())
        assert at is not None
        now = seconds_time(at + 1)
        ready = {"type": "Ready", "status": status, "reason": "Kubelet", "lastHeartbeatTime": now}
        patch = {"status": {"conditions": [{**ready, "lastTransitionTime": now}]}}
        self.scene.cluster.admin.patch(f"{self.scene.path}/status", patch)

    def notes(self) -> dict[str, str]:
        return self.member.object()["metadata"].get("annotations") or {}

    def uncordoned(self) -> bool:
        return any(isinstance(event, DegradedUncordoned) for event in self.member.world.events)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with client_of(cluster) as made:
        yield made


@pytest.fixture
async def degraded(cluster: Cluster, node: str, client: KubeClient) -> AsyncIterator[Degraded]:
    namespace = f"uncordon-{next(_numbers)}"
    cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    scene = Scene(cluster, client, node, namespace)
    kubelet = asyncio.create_task(scene.kubelet())
    limits = replace(QUICK, revert=False, may_reboot=False)
    member = SimNode(cluster, node, limits=limits, on_remaining=scene.seen.append)
    member.want(BEFORE)
    await asyncio.wait_for(member.settle(), 180)
    scene.pod("web")
    member.world.units["app.service"] = FakeUnit(fail_restarts=1)
    member.want(FAILS)
    await asyncio.wait_for(member.settle(), 180)
    assert (member.phase, member.cordoned, scene.names()) == (Phase.DEGRADED, True, [])
    member.world.units["app.service"].active = "active"
    member.limits = QUICK
    ports = replace(member.build().ports, readiness=KubeReadiness(client, node, SystemClock()))
    yield Degraded(scene, member, DegradedNode(ports, lambda: None, on=True))
    await member.close()
    kubelet.cancel()
    await asyncio.gather(kubelet, return_exceptions=True)


async def test_a_node_that_works_takes_pods_again(degraded: Degraded) -> None:
    degraded.ready("False")
    await degraded.rests()
    assert degraded.member.cordoned
    degraded.ready("True")
    await degraded.rests()
    assert (degraded.member.cordoned, degraded.uncordoned()) == (False, True)
    assert CORDONED_BY not in degraded.notes()
    assert lease_of(degraded.scene.cluster, degraded.scene.node) is not None
    assert degraded.member.record.cordon == ""
    # The repair drains it again, and gives everything back.
    await degraded.member.close()
    degraded.scene.pod("again")
    degraded.member.want(REPAIRS)
    await asyncio.wait_for(degraded.member.settle(), 180)
    assert (degraded.member.outcomes()[-1], degraded.scene.names()) == ("done", [])
    assert not degraded.member.cordoned
    assert lease_of(degraded.scene.cluster, degraded.scene.node) is None


async def test_the_cordon_of_an_admin_stays(degraded: Degraded) -> None:
    admin: Any = degraded.scene.cluster.admin
    admin.patch(degraded.scene.path, {"metadata": {"annotations": {CORDONED_BY: None}}})
    degraded.ready("True")
    await degraded.rests()
    assert degraded.member.cordoned


async def test_a_node_whose_lease_was_deleted_stays_cordoned(degraded: Degraded) -> None:
    degraded.scene.cluster.admin.delete(
        f"/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases/node-{degraded.scene.node}"
    )
    degraded.ready("True")
    await degraded.rests()
    assert (degraded.member.cordoned, degraded.uncordoned()) == (True, False)
