# SPDX-License-Identifier: Apache-2.0
"""Pods that hold updates off, by a real API server: its selectors, its filters, and a pod that comes in between."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from integration.cluster.api import ApiError
from integration.cluster.cluster import Cluster
from integration.cluster.other_holders import client_of, lease_of
from integration.cluster.sim_node import SimNode
from integration.cluster.test_drain import Scene, hurry
from nodeagent.agent.loop import Loop
from nodeagent.features.busy_pods.events import BusyPod
from nodeagent.features.busy_pods.guard import BusyGuard
from nodeagent.features.busy_pods.pods import KubeBusyPods
from nodeagent.features.busy_pods.settings import BusyPodSettings
from nodeagent.features.cluster.lease import KubeLease
from nodeagent.host.clock import SystemClock
from nodeagent.kube.client import KubeClient
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import UpdateWaiting
from nodeagent.update.stages.coordination import Coordination
from nodeagent.update.states import Phase
from tests.features.busy_pods.selectors import INVALID, VALID
from tests.world import FakePower, FakeReporter, FakeStore
from tests.world.run import config

BEFORE = config("before", {"/etc/app/x": "1"})
REBOOTS = config("after", {"/etc/app/x": "1", "/etc/unlisted": "2"})
SETTINGS = BusyPodSettings(selectors=("job in (image,test)", "backup"))

__all__ = ["hurry"]
_numbers = itertools.count(1)


@dataclass
class Pods:
    """Implements ``guard.BusyPods`` with the client that the present life of the node has."""

    member: SimNode
    settings: BusyPodSettings = field(default_factory=lambda: SETTINGS)

    async def running(self) -> Sequence[BusyPod]:
        assert self.member.side is not None
        return await KubeBusyPods(self.member.side.client, self.member.node, self.settings).running()


class BusyNode(SimNode):
    def build(self) -> Loop:
        boot_id, reporter = FakePower(self.world).boot_id, FakeReporter(self.world)
        self.guards = [BusyGuard(Pods(self), FakeStore(self.world), SystemClock(), boot_id, reporter)]
        return super().build()

    def coordination(self, report: Callable[[Holder | None], None] = lambda _: None) -> Coordination:
        made = super().coordination(report)
        made.guards = list(self.guards)
        return made


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with client_of(cluster) as made:
        yield made


@pytest.fixture
async def scene(cluster: Cluster, node: str, client: KubeClient) -> AsyncIterator[Scene]:
    namespace = f"busy-{next(_numbers)}"
    cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    made = Scene(cluster, client, node, namespace)
    kubelet = asyncio.create_task(made.kubelet())
    yield made
    kubelet.cancel()
    await asyncio.gather(kubelet, return_exceptions=True)


async def running(scene: Scene, *selectors: str, **settings: Any) -> list[str]:
    about = BusyPodSettings(selectors=selectors, **settings)
    found = await KubeBusyPods(scene.client, scene.node, about).running()
    return [str(pod).removeprefix(f"{scene.namespace}/") for pod in found]


@pytest.mark.parametrize("selector", VALID)
async def test_the_server_takes_each_valid_selector(cluster: Cluster, selector: str) -> None:
    await asyncio.to_thread(cluster.admin.request, "GET", "/api/v1/pods", query={"labelSelector": selector})


@pytest.mark.parametrize("selector", INVALID)
async def test_the_server_takes_no_invalid_selector(cluster: Cluster, selector: str) -> None:
    with pytest.raises(ApiError) as raised:
        await asyncio.to_thread(cluster.admin.request, "GET", "/api/v1/pods", query={"labelSelector": selector})
    assert raised.value.status == 400


async def test_only_unfinished_pods_of_this_node_that_match(
    scene: Scene, cluster: Cluster, make_node: Callable[[], str]
) -> None:
    """Among 40 pods of the node, and as many of another one."""
    other = Scene(cluster, scene.client, make_node(), scene.namespace)
    for number in range(40):
        scene.pod(f"web-{number}", labels={"app": "web", "job": "none"})
        other.pod(f"there-{number}", labels={"job": "image"})
    for phase in ("Pending", "Running", "Unknown", "Succeeded", "Failed"):
        scene.pod(f"job-{phase.lower()}", phase=phase, labels={"job": "image"})
    scene.pod("nightly", labels={"backup": ""}, kind="DaemonSet")
    scene.pod("ending", labels={"job": "test"}, finalizers=["example.com/upload"])
    cluster.admin.delete(f"{scene.pods}/ending")
    jobs = ["ending", "job-pending", "job-running", "job-unknown"]
    assert await running(scene, "job in (image,test)", "backup") == [*jobs, "nightly"]
    assert await running(scene, "job notin (image, none)", namespaces=(scene.namespace,)) == ["ending", "nightly"]
    assert await running(scene, "backup", namespaces=("default",)) == []
    assert len(await running(scene, "app=web")) == 40
    cluster.admin.patch(f"{scene.pods}/ending", {"metadata": {"finalizers": None}})
    cluster.admin.end_pod(f"{scene.pods}/ending")
    assert await running(scene, "job = test") == []


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("between", [False, True], ids=["before", "in between"])
async def test_an_update_waits_for_a_build(scene: Scene, monkeypatch: pytest.MonkeyPatch, *, between: bool) -> None:
    """It holds nothing while it waits, also for a build that starts when it has just taken the lease."""
    member = BusyNode(scene.cluster, scene.node, on_remaining=scene.seen.append, pool=scene.namespace)
    member.want(BEFORE)
    await asyncio.wait_for(member.settle(), 180)
    for number in range(30):
        scene.pod(f"web-{number}")
    builds = iter([f"build-{number}" for number in range(2)])

    def build() -> None:
        scene.pod(next(builds), labels={"job": "image"}, kind="")

    taken: list[str] = []
    acquire = KubeLease.acquire

    async def then_build(self: KubeLease, holder: str, operation: str, reason: str) -> None:
        await acquire(self, holder, operation, reason)
        taken.append(operation)
        if len(taken) == 1 and between:
            await asyncio.to_thread(build)

    monkeypatch.setattr(KubeLease, "acquire", then_build)
    if not between:
        build()
    member.want(REBOOTS)
    life = asyncio.create_task(member.live())
    try:
        message = await member.reported(UpdateWaiting, "BusyPods")
        assert message == (
            f"1 pod holds the work on this node off: {scene.namespace}/build-0; the update continues when that is over"
        )
        await until(lambda: lease_of(scene.cluster, scene.node) is None)
        assert (member.cordoned, member.phase, len(taken)) == (False, Phase.LEASING, int(between))
        slots = scene.cluster.admin.request("GET", "/apis/coordination.k8s.io/v1/namespaces/nodeagent/leases")["items"]
        mine = [each for each in slots if f"-{scene.namespace}-" in each["metadata"]["name"]]
        assert all(not each["spec"].get("holderIdentity") for each in mine)
        assert len(scene.names()) == 31
        scene.cluster.admin.patch(f"{scene.pods}/build-0/status", {"status": {"phase": "Succeeded"}})
        # The kubelet of the test ends what is evicted, and the host goes down.
        assert not await asyncio.wait_for(asyncio.shield(life), 180)
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
    await asyncio.wait_for(member.settle(), 180)
    assert member.outcomes()[-1] == "done"
    assert not member.cordoned
    assert lease_of(scene.cluster, scene.node) is None
