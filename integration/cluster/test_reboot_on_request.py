# SPDX-License-Identifier: Apache-2.0
"""The annotation that requests a reboot, on the Node of a real API server, with the rights of packaging/kubernetes."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.other_holders import client_of, lease_of
from integration.cluster.sim_node import SimNode
from integration.cluster.test_drain import Scene, hurry
from integration.cluster.test_rights import by_certificate, by_token, in_force, installed
from nodeagent.features.reboot_on_request.node import ANSWER, REQUEST, NodeRequests
from nodeagent.features.reboot_on_request.requests import KeptRequests
from nodeagent.features.reboot_on_request.settings import RebootRequestSettings
from nodeagent.host.clock import SystemClock
from nodeagent.kube.errors import Forbidden
from nodeagent.reasons import Reason
from nodeagent.update.run import Run
from nodeagent.update.stages.guard import Guard
from nodeagent.update.states import Phase
from nodeagent.update.wait import NotNow
from tests.world import FakePower, FakeReporter, FakeStore
from tests.world.run import config

__all__ = ["hurry", "installed"]
_numbers = itertools.count(1)

BEFORE = config("before", {"/etc/app/x": "1"})
SLOTS = "/apis/coordination.k8s.io/v1/namespaces/nodeagent/leases"


class Closed(Guard):
    """No update begins."""

    async def may_begin(self, run: Run) -> None:
        raise NotNow("no window is open", reason=Reason.LEASE_HELD)


class AskedNode(SimNode):
    """``closed``: no update may begin. ``requests`` are those of the present life."""

    closed = False
    requests: KeptRequests

    async def live(self) -> bool:
        settings, power, guard = RebootRequestSettings(request_file=""), FakePower(self.world), Guard()
        self.requests = KeptRequests(
            FakeStore(self.world),
            FakeReporter(self.world),
            SystemClock(),
            power.boot_id(),
            settings=settings,
            on_change=lambda: None,
        )
        guard.reboot_requests = self.requests
        await self.requests.load()
        self.guards = [guard, *([Closed()] if self.closed else [])]
        return await super().live()


@dataclass
class Asked:
    scene: Scene
    member: AskedNode

    @property
    def cluster(self) -> Cluster:
        return self.scene.cluster

    async def look(self) -> None:
        """The agent reads its Node once, with the rights that it has as installed."""

        def at_rest() -> bool:
            return self.member.phase in (Phase.IDLE, Phase.DEGRADED)

        async with by_token(self.cluster, self.scene.node) as client:
            requests = self.member.requests
            await NodeRequests(client, self.scene.node, requests, SystemClock(), at_rest, lambda: 0.5).look()

    async def until(self, so: Callable[[], Any]) -> None:
        """Look until it is so: the cache of the API server has a change a moment later."""
        async with asyncio.timeout(60):
            while not so():
                await self.look()
                await asyncio.sleep(0.1)

    def annotate(self, value: str | None) -> None:
        self.cluster.admin.patch(self.scene.path, {"metadata": {"annotations": {REQUEST: value}}})

    def notes(self) -> dict[str, str]:
        return self.member.object()["metadata"].get("annotations") or {}

    def slots(self) -> list[str]:
        """Return the holders of the slots of the pool."""
        leases = self.cluster.admin.get(SLOTS)["items"]
        mine = [lease["spec"] for lease in leases if f"-{self.scene.namespace}-" in lease["metadata"]["name"]]
        return [holder.partition("/")[0] for spec in mine if (holder := spec.get("holderIdentity"))]


@pytest.fixture
async def asked(installed: Cluster, node: str) -> AsyncIterator[Asked]:
    await in_force(installed)
    namespace = f"reboot-{next(_numbers)}"
    installed.admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    async with client_of(installed) as client:
        scene = Scene(installed, client, node, namespace)
        kubelet = asyncio.create_task(scene.kubelet())
        member = AskedNode(installed, node, on_remaining=scene.seen.append, pool=namespace)
        member.want(BEFORE)
        await asyncio.wait_for(member.settle(), 180)
        yield Asked(scene, member)
        kubelet.cancel()
        await asyncio.gather(kubelet, return_exceptions=True)


@pytest.mark.finding(
    "units: a reboot on request",
    "An annotation of the Node requests a reboot with slot, lease, drain and verification, once for each value.",
)
async def test_an_annotation_is_one_reboot(asked: Asked) -> None:
    node, member = asked.scene.node, asked.member
    asked.scene.pod("web")
    asked.annotate("firmware 2.4")
    await asked.until(lambda: member.requests.taken)
    assert not await asyncio.wait_for(member.live(), 180), "the host goes down"
    assert lease_of(asked.cluster, node) is not None
    assert (asked.slots(), member.cordoned, asked.scene.names()) == ([node], True, [])
    assert ANSWER not in asked.notes()
    await asyncio.wait_for(member.settle(), 180)
    assert (lease_of(asked.cluster, node), asked.slots(), member.cordoned) == (None, [], False)
    await asked.until(lambda: ANSWER in asked.notes())
    answer = json.loads(asked.notes()[ANSWER])
    assert (answer["request"], answer["result"]) == ("firmware 2.4", "rebooted")
    assert member.actions().count("reboot") == 1
    # The value stays on the Node, and is no further request.
    await asked.look()
    await asyncio.wait_for(member.settle(), 180)
    assert member.actions().count("reboot") == 1


async def test_a_request_that_waits_is_taken_back_with_its_annotation(asked: Asked) -> None:
    member = asked.member
    member.closed = True
    asked.annotate("firmware 2.4")
    await asked.until(lambda: member.requests.pending())
    assert await asyncio.wait_for(member.live(), 180)
    asked.annotate(None)
    await asked.until(lambda: member.requests.pending() is None)
    member.closed = False
    await asyncio.wait_for(member.settle(), 180)
    assert ("reboot" in member.actions(), lease_of(asked.cluster, asked.scene.node)) == (False, None)


@pytest.mark.parametrize("connect", [by_token, by_certificate])
async def test_the_agent_of_another_node_requests_no_reboot(
    asked: Asked, make_node: Callable[[], str], connect: Any
) -> None:
    async with connect(asked.cluster, make_node()) as client:
        for path in (asked.scene.path, f"{asked.scene.path}/status"):
            with pytest.raises(Forbidden, match="this agent is that of node"):
                await client.patch(path, {"metadata": {"annotations": {REQUEST: "now"}}})
    await asked.look()
    assert (asked.member.requests.pending(), REQUEST in asked.notes()) == (None, False)
