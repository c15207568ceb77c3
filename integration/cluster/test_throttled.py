# SPDX-License-Identifier: Apache-2.0
"""An API server that is too busy for evictions: its own fairness says 429, which is no disruption budget."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.controller import Controller, Memory
from integration.cluster.other_holders import client_at
from integration.cluster.test_drain import OP, Scene, ending, hurry
from integration.cluster.test_restarted import OUTAGES, Follower
from integration.cluster.webhook import denying
from nodeagent.errors import AgentError
from nodeagent.features.cluster import handshake
from nodeagent.features.cluster.handshake import Handshake
from nodeagent.features.cluster.node_watch import NodeWatch, WatchEnd
from nodeagent.kube.client import KubeClient, Object
from nodeagent.kube.errors import Throttled

FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
_numbers = itertools.count(1)

__all__ = ["hurry"]  # a fixture, for every test


@pytest.fixture
async def scene(cluster: Cluster, node: str) -> AsyncIterator[Scene]:
    """A drain as in the other tests, but not by an administrator: those are exempt from fairness."""
    user = namespace = f"throttled-{next(_numbers)}"
    for name in (namespace, f"{namespace}-slow"):
        cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    cluster.admin.create(bindings, {"metadata": {"name": user}, "roleRef": role, "subjects": [subject]})
    async with client_at(cluster, cluster.kubeconfig(user), timeout=60.0) as client:
        made = Scene(cluster, client, node, namespace)
        kubelet = asyncio.create_task(made.kubelet())
        yield made
        kubelet.cancel()
        with suppress(asyncio.CancelledError):
            await kubelet


@contextmanager
def one_seat(scene: Scene, *, everything: bool = False) -> Iterator[None]:
    """The server does one eviction of this user at a time, and queues none; with ``everything``, one request."""
    name = scene.namespace
    limited = {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    level = {"metadata": {"name": name}, "spec": {"type": "Limited", "limited": limited}}
    evictions: dict[str, Any] = {
        "verbs": ["create"],
        "apiGroups": [""],
        "resources": ["pods/eviction"],
        "namespaces": ["*"],
    }
    if everything:
        evictions = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    rule = {"subjects": [{"kind": "User", "user": {"name": name}}], "resourceRules": [evictions]}
    flow = {"priorityLevelConfiguration": {"name": name}, "matchingPrecedence": 2, "rules": [rule]}
    scene.cluster.admin.create(f"{FLOW}/prioritylevelconfigurations", level)
    scene.cluster.admin.create(f"{FLOW}/flowschemas", {"metadata": {"name": name}, "spec": flow})
    try:
        yield
    finally:
        scene.cluster.admin.delete(f"{FLOW}/flowschemas/{name}")
        scene.cluster.admin.delete(f"{FLOW}/prioritylevelconfigurations/{name}")


async def evict_missing(client: KubeClient, namespace: str) -> None:
    meta = {"name": "missing", "namespace": namespace}
    body: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    await client.create(f"/api/v1/namespaces/{namespace}/pods/missing/eviction", body, throttled=1)


async def occupy(scene: Scene) -> None:
    """Takes the seat, again and again: the rules are in force a moment after they are made."""
    while True:
        with suppress(AgentError):
            await evict_missing(scene.client, f"{scene.namespace}-slow")
        await asyncio.sleep(0.02)


async def throttled(scene: Scene) -> Throttled:
    async with asyncio.timeout(60):
        while True:
            try:
                await evict_missing(scene.client, scene.namespace)
            except Throttled as error:
                return error
            except AgentError:
                await asyncio.sleep(0.2)


@pytest.mark.timeout(1200)
@pytest.mark.cluster_failure(
    "the API server throttles evictions", "retries when the server allows it; does not report a budget"
)
async def test_a_busy_server_is_no_budget_and_is_asked_again(scene: Scene) -> None:
    scene.pod("web")
    scene.budget("web-budget", "web", allowed=1)
    free = threading.Event()
    with one_seat(scene), denying(scene.cluster, f"{scene.namespace}-slow", hold=free) as held:
        occupying = [asyncio.create_task(occupy(scene)) for _ in range(6)]
        # Before the webhook is in force, an eviction leaves the seat at once, and the one of the pod could take it.
        assert await asyncio.to_thread(held.wait, 120)
        assert (await throttled(scene)).retry_after, "the server says when to come again"
        drain = asyncio.create_task(scene.port().drain(OP, 120))
        await scene.why("web", "the API server is busy")
        for task in occupying:
            task.cancel()
        await asyncio.gather(*occupying, return_exceptions=True)
        free.set()
        await ending(drain)
    assert scene.names() == []
    assert not any("budget" in pod.why for seen in scene.seen for pod in seen)


@pytest.mark.timeout(1200)
@pytest.mark.finding(
    "cluster: answers that say nothing", "While the API server is too busy, the last desired config stays."
)
async def test_an_agent_at_rest_waits_for_a_busy_server(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "READ_FIRST_PAUSE", 0.2)
    monkeypatch.setattr(handshake, "READ_LONGEST_PAUSE", 1.0)
    controller, follower = Controller(scene.cluster, scene.node), Follower()
    first, second = f"{scene.namespace}-first", f"{scene.namespace}-second"
    for name in (first, second):
        controller.make(name, x="1")
    controller.desire(first)

    async def desired(name: str) -> None:
        async with asyncio.timeout(60):
            while await follower.desired() != name:
                await asyncio.sleep(0.05)

    # A watch that is refused is not asked for again soon, and the Node is polled.
    follower.shake = Handshake(
        scene.client,
        scene.node,
        Memory(),
        changed=lambda _: None,
        on_error=follower.fault,
        every=0.5,
        watch=Unwatched(scene.client, scene.node),
    )
    running, free = asyncio.create_task(follower.shake.run()), threading.Event()
    try:
        await desired(first)
        with one_seat(scene, everything=True), denying(scene.cluster, f"{scene.namespace}-slow", hold=free) as held:
            occupying = [asyncio.create_task(occupy(scene)) for _ in range(6)]
            assert await asyncio.to_thread(held.wait, 120)
            await asyncio.to_thread(controller.desire, second)
            async with asyncio.timeout(60):
                while "KubeThrottled" not in follower.reasons:
                    assert await follower.desired() in (first, second)
                    await asyncio.sleep(0.05)
            for task in occupying:
                task.cancel()
            await asyncio.gather(*occupying, return_exceptions=True)
            free.set()
        await desired(second)
    finally:
        free.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert set(follower.reasons) <= OUTAGES


class Unwatched(NodeWatch):
    async def follow(self, *_: object) -> WatchEnd:
        return WatchEnd.POLL
