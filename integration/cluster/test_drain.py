# SPDX-License-Identifier: Apache-2.0
"""Drains of real pods' objects through the real eviction API. A test plays the kubelet and the disruption
controller."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.other_holders import client_of, goodbye, seconds
from integration.cluster.webhook import denying
from nodeagent.core.coordination.kube_objects import Pod
from nodeagent.errors import Refused
from nodeagent.features.cluster import drain as module
from nodeagent.features.cluster.decide import drain as decisions
from nodeagent.features.cluster.decide.drain import DrainPolicy, PodWait, Remaining, cause_of, eviction
from nodeagent.features.cluster.decide.drain_order import DrainOrder
from nodeagent.features.cluster.drain import CORDONED_BY, DRAIN_BEGINS, KubeNode
from nodeagent.host.clock import SystemClock
from nodeagent.kube.client import KubeClient
from nodeagent.kube.decode import decoded
from nodeagent.kube.errors import Conflict
from nodeagent.reasons import Reason

OP = "3f2b"
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL", 0.2)
    monkeypatch.setattr(module, "SETTLE", 0.5)
    monkeypatch.setattr(decisions, "FIRST_PAUSE", 0.3)
    monkeypatch.setattr(decisions, "LAST_PAUSE", 1.0)


@dataclass
class Scene:
    """A node with pods in a namespace of its own. ``kubelet`` ends terminating pods of the node."""

    cluster: Cluster
    client: KubeClient
    node: str
    namespace: str
    policy: DrainPolicy = field(default_factory=DrainPolicy)
    seen: list[Sequence[Remaining]] = field(default_factory=list)

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.node}"

    def port(self, check_lease: Callable[[str], Any] | None = None) -> KubeNode:
        async def yes(_: str) -> None: ...

        return KubeNode(
            self.client,
            self.node,
            SystemClock(),
            check_lease=check_lease or yes,
            report=self.seen.append,
            policy=self.policy,
        )

    def pod(
        self, name: str, *, kind: str = "ReplicaSet", phase: str = "Running", spec: Any = None, **meta: Any
    ) -> dict[str, Any]:
        owner = f"{name}-set"
        owners = [{"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": f"uid-{kind}", "controller": True}]
        container = {"name": "c", "image": "registry.example.com/image:1"}
        body = {
            "metadata": {"name": name, "labels": {"app": name}, "ownerReferences": owners if kind else [], **meta},
            "spec": {"nodeName": self.node, "containers": [container], **(spec or {})},
        }
        self.cluster.admin.create(self.pods, body)
        # An unready pod would go whatever its budget allows.
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}
        return self.cluster.admin.patch(f"{self.pods}/{name}/status", {"status": status})

    def daemon_set(self, name: str) -> None:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
        self.cluster.admin.create(f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets", body)

    def budget(self, name: str, app: str, allowed: int) -> None:
        """A disruption budget as its controller would leave it."""
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        if self.cluster.admin.find(f"{path}/{name}") is None:
            spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
            self.cluster.admin.create(path, {"metadata": {"name": name}, "spec": spec})
        status = {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed,
            "desiredHealthy": 1,
            "expectedPods": 1 + allowed,
        }
        self.cluster.admin.patch(f"{path}/{name}/status", {"status": status})

    def names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.cluster.admin.get(self.pods)["items"]]

    def reap(self) -> None:
        for pod in self.cluster.admin.get(self.pods)["items"]:
            if pod["metadata"].get("deletionTimestamp") and pod["spec"]["nodeName"] == self.node:
                self.cluster.admin.end_pod(f"{self.pods}/{pod['metadata']['name']}")

    async def kubelet(self) -> None:
        while True:
            with suppress(OSError):
                await asyncio.to_thread(self.reap)
            await asyncio.sleep(0.3)

    async def why(self, name: str, words: str, timeout: float = 20.0) -> None:
        """Waits until the drain gives ``words`` as the reason why that pod is there."""
        async with asyncio.timeout(timeout):
            while not any(pod.name == name and words in pod.why for pod in (self.seen or [()])[-1]):
                await asyncio.sleep(0.05)


@pytest.fixture
async def scene(cluster: Cluster, node: str) -> AsyncIterator[Scene]:
    namespace = f"drain-{next(_numbers)}"
    cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    async with client_of(cluster, timeout=2.0) as client:
        made = Scene(cluster, client, node, namespace)
        kubelet = asyncio.create_task(made.kubelet())
        yield made
        kubelet.cancel()
        with suppress(asyncio.CancelledError):
            await kubelet
    await goodbye(cluster)


async def refused(what: Any, reason: str) -> str:
    with pytest.raises(Refused) as caught:
        await what
    assert caught.value.reason == reason
    return caught.value.message


def ending(task: asyncio.Task[None]) -> Any:
    return asyncio.wait_for(task, 180)


@pytest.mark.finding("peers: kubectl drain", "A pod whose DaemonSet does not exist any more is evicted.")
async def test_what_goes_and_what_stays(scene: Scene) -> None:
    scene.pod("web")
    scene.pod("finished", kind="", phase="Succeeded")
    scene.pod("bare", kind="")
    scene.pod("scratch", spec={"volumes": [{"name": "v", "emptyDir": {}}]})
    scene.pod("agent", kind="DaemonSet")
    scene.daemon_set("agent-set")
    scene.pod("orphan", kind="DaemonSet")
    scene.pod("static", kind="", annotations={"kubernetes.io/config.mirror": "hash"})
    port = scene.port()
    await port.drain(OP, 60)
    assert scene.names() == ["agent", "static"]
    node = scene.cluster.admin.get(scene.path)
    assert node["spec"]["unschedulable"] is True
    assert node["metadata"]["annotations"][CORDONED_BY] == OP
    await port.uncordon("another")
    assert scene.cluster.admin.get(scene.path)["spec"]["unschedulable"] is True
    await port.uncordon(OP)
    node = scene.cluster.admin.get(scene.path)
    assert "unschedulable" not in node["spec"]
    assert CORDONED_BY not in node["metadata"].get("annotations", {})


@pytest.mark.cluster_failure(
    "a disruption budget allows no eviction",
    "reports the budget with its counts, retries until the deadline, never deletes with force",
)
async def test_a_budget_is_named_with_its_counts_and_waited_for(scene: Scene) -> None:
    scene.pod("web")
    scene.pod("other")
    scene.budget("web-budget", "web", allowed=0)
    drain = asyncio.create_task(scene.port().drain(OP, 60))
    await scene.why("web", "web-budget")
    await scene.why("web", "needs 1 healthy pods and has 1 currently")
    async with asyncio.timeout(20):  # the others do not wait for it
        while scene.names() != ["web"]:
            await asyncio.sleep(0.1)
    scene.budget("web-budget", "web", allowed=1)
    await ending(drain)
    assert scene.names() == []


@pytest.mark.cluster_failure(
    "two budgets apply to one pod", "reports that an operator has to act; evicts the other pods"
)
async def test_two_budgets_need_an_operator(scene: Scene) -> None:
    scene.pod("web")
    scene.budget("one", "web", allowed=1)
    scene.budget("two", "web", allowed=1)
    drain = asyncio.create_task(scene.port().drain(OP, 60))
    await scene.why("web", "more than one disruption budget")
    scene.cluster.admin.delete(f"/apis/policy/v1/namespaces/{scene.namespace}/poddisruptionbudgets/two")
    await ending(drain)


@pytest.mark.parametrize(("broken", "words"), [(False, "the virtual machine is being moved"), (True, "failed calling")])
@pytest.mark.cluster_failure("a webhook denies evictions, or fails", "retries, and names the webhook")
async def test_a_webhook_that_denies_or_breaks_is_asked_again(scene: Scene, broken: bool, words: str) -> None:
    scene.pod("vm")
    with denying(scene.cluster, scene.namespace, broken=broken):
        # The API server learns of a new webhook a moment later.
        await asyncio.sleep(1)
        drain = asyncio.create_task(scene.port().drain(OP, 60))
        await scene.why("vm", words)
        await scene.why("vm", f"mover.{scene.namespace}.example.com")
        assert scene.names() == ["vm"]
    await ending(drain)
    assert scene.names() == []


@pytest.mark.cluster_failure("a pod stays in terminating", "lists it with its finalizers and its grace period")
async def test_finalizers_are_named(scene: Scene) -> None:
    scene.pod("sticky", finalizers=["example.com/volume"])
    drain = asyncio.create_task(scene.port().drain(OP, 60))
    await scene.why("sticky", "waits for example.com/volume")
    scene.cluster.admin.patch(f"{scene.pods}/sticky", {"metadata": {"finalizers": None}})
    await ending(drain)


@pytest.mark.cluster_failure("a disruption budget allows no eviction")
async def test_the_deadline_names_what_is_left(scene: Scene) -> None:
    scene.pod("web")
    scene.budget("web-budget", "web", allowed=0)
    message = await refused(scene.port().drain(OP, 2), "DrainTimedOut")
    assert f"{scene.namespace}/web: a disruption budget: " in message
    assert scene.names() == ["web"], "nothing is forced"


async def test_the_policy_protects_before_anything_goes(scene: Scene) -> None:
    scene.policy = DrainPolicy(unmanaged=False)
    scene.pod("bare", kind="")
    scene.pod("web")
    message = await refused(scene.port().drain(OP, 60), "DrainRefused")
    assert f"{scene.namespace}/bare: not managed by a controller" in message
    assert "web" not in message
    assert scene.names() == ["bare", "web"]


async def test_who_comes_later_is_protected_as_well(scene: Scene) -> None:
    scene.policy = DrainPolicy(unmanaged=False)
    scene.pod("web")
    scene.budget("web-budget", "web", allowed=0)
    drain = asyncio.create_task(scene.port().drain(OP, 60))
    await scene.why("web", "web-budget")
    scene.pod("late", kind="")
    await scene.why("late", "not managed by a controller")
    scene.budget("web-budget", "web", allowed=1)
    await asyncio.sleep(2)
    assert scene.names() == ["late"]
    scene.cluster.admin.delete(f"{scene.pods}/late")
    await ending(drain)


@pytest.mark.cluster_failure("an admin had cordoned the node", "leaves it cordoned")
async def test_a_cordon_of_an_admin_stays(scene: Scene) -> None:
    scene.cluster.admin.patch(scene.path, {"spec": {"unschedulable": True}})
    port = scene.port()
    await port.drain(OP, 60)
    await port.uncordon(OP)
    node = scene.cluster.admin.get(scene.path)
    assert node["spec"]["unschedulable"] is True
    assert CORDONED_BY not in node["metadata"].get("annotations", {})


@pytest.mark.cluster_failure(
    "an admin uncordons the node during the drain",
    "the first time: cordons it again; the second time: cancels the update",
)
async def test_uncordoned_once_is_cordoned_again_and_twice_is_an_answer(scene: Scene) -> None:
    scene.pod("web")
    scene.budget("web-budget", "web", allowed=0)
    drain = asyncio.create_task(scene.port().drain(OP, 60))
    await scene.why("web", "web-budget")
    scene.cluster.admin.patch(scene.path, {"spec": {"unschedulable": None}})
    async with asyncio.timeout(20):
        while not scene.cluster.admin.get(scene.path)["spec"].get("unschedulable"):
            await asyncio.sleep(0.1)
    scene.cluster.admin.patch(scene.path, {"spec": {"unschedulable": None}})
    await refused(ending(drain), "DrainCanceled")
    assert "unschedulable" not in scene.cluster.admin.get(scene.path)["spec"]
    assert scene.names() == ["web"]


@pytest.mark.cluster_failure("the lease is stolen during the drain")
async def test_a_lost_lease_stops_it_before_the_next_eviction(scene: Scene) -> None:
    scene.pod("web")

    async def lost(_: str) -> None:
        raise Refused("the lease was lost: NHC took it", reason=Reason.LEASE_LOST)

    await refused(scene.port(lost).drain(OP, 60), "LeaseLost")
    assert scene.names() == ["web"]
    assert "unschedulable" not in scene.cluster.admin.get(scene.path)["spec"]


@pytest.mark.cluster_failure("the agent crashes during the drain")
@pytest.mark.cluster_failure("the agent is stopped by its own update")
async def test_a_kill_in_the_middle_and_another_process_goes_on(scene: Scene) -> None:
    scene.pod("web")
    scene.budget("web-budget", "web", allowed=0)
    first = asyncio.create_task(scene.port().drain(OP, 60))
    await scene.why("web", "web-budget")
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    scene.budget("web-budget", "web", allowed=1)
    again = scene.port()
    await again.drain(OP, 60)
    await again.uncordon(OP)
    assert "unschedulable" not in scene.cluster.admin.get(scene.path)["spec"], "the cordon was still known as ours"


@pytest.mark.cluster_failure("the API server is down, nothing was written")
async def test_an_api_server_that_hangs_in_the_middle(scene: Scene) -> None:
    scene.pod("web")
    scene.budget("web-budget", "web", allowed=0)
    drain = asyncio.create_task(scene.port().drain(OP, 120))
    await scene.why("web", "web-budget")
    scene.cluster.apiserver.pause()
    await asyncio.sleep(5)
    scene.cluster.apiserver.resume()
    await asyncio.to_thread(scene.budget, "web-budget", "web", 1)
    await ending(drain)
    assert scene.names() == []


@pytest.mark.cluster_failure("new pods keep arriving", "the node is drained only after two empty lists")
async def test_pods_that_keep_coming_are_sent_away_until_none_does(scene: Scene) -> None:
    """Those that tolerate the cordon, or are bound by name."""
    drain = asyncio.create_task(scene.port().drain(OP, 60))
    for number in range(4):
        scene.pod(f"late-{number}")
        await asyncio.sleep(0.4)
        assert not drain.done(), "one empty look is not enough"
    await ending(drain)
    assert scene.names() == []


@pytest.mark.cluster_failure("a pod of the same name exists again", "does not evict it, because the uid differs")
async def test_another_pod_of_the_same_name_is_not_touched(scene: Scene) -> None:
    """One of a StatefulSet that was made again elsewhere while we looked at the old one."""
    old = scene.pod("db-0", kind="StatefulSet")
    scene.cluster.admin.end_pod(f"{scene.pods}/db-0")
    scene.pod("db-0", kind="StatefulSet")
    with pytest.raises(Conflict) as caught:
        await scene.client.create(f"{scene.pods}/db-0/eviction", eviction(decoded(Pod, old, "test")))
    assert cause_of(caught.value.status, caught.value.detail)[0] is PodWait.GONE
    (pod,) = scene.cluster.admin.get(scene.pods)["items"]
    assert "deletionTimestamp" not in pod["metadata"]


def evicted(scene: Scene) -> list[tuple[str, float]]:
    """The pods of which the API server accepted an eviction, by its audit log, with its time."""
    return [
        (what["name"], seconds(event["requestReceivedTimestamp"]))
        for event in scene.cluster.audit()
        if (what := event.get("objectRef") or {}).get("subresource") == "eviction"
        and what.get("namespace") == scene.namespace
        and event["responseStatus"]["code"] < 300
    ]


async def test_each_step_is_over_before_the_next_one_begins(scene: Scene) -> None:
    """A kill between two steps changes nothing: the step follows from the pods that are left."""
    scene.policy = DrainPolicy(order=DrainOrder(("app=proxy",), ("app=storage",)))
    for name in ("storage", "web", "other", "proxy"):
        scene.pod(name)
    scene.budget("web-budget", "web", allowed=0)
    first = asyncio.create_task(scene.port().drain(OP, 60))
    await scene.why("storage", f"evicted after the pods of an earlier step: {scene.namespace}/")
    await scene.why("web", "web-budget")
    async with asyncio.timeout(20):
        while sorted(scene.names()) != ["storage", "web"]:
            await asyncio.sleep(0.1)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    again = asyncio.create_task(scene.port().drain(OP, 60))
    await asyncio.sleep(2)
    assert [name for name, _ in evicted(scene) if name == "storage"] == []
    scene.budget("web-budget", "web", allowed=1)
    await ending(again)
    order = list(dict.fromkeys(name for name, _ in evicted(scene)))
    assert (order[0], order[-1]) == ("proxy", "storage")
    assert scene.names() == []


async def test_the_lead_time_is_between_cordon_and_eviction_and_a_kill_does_not_begin_it_again(scene: Scene) -> None:
    scene.policy = DrainPolicy(lead_time=6)
    scene.pod("web")
    first = asyncio.create_task(scene.port().drain(OP, 60))
    await scene.why("web", "evicted after the lead time: from ")
    note = scene.cluster.admin.get(scene.path)["metadata"]["annotations"][DRAIN_BEGINS]
    assert scene.cluster.admin.get(scene.path)["spec"]["unschedulable"] is True
    await asyncio.sleep(2)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    again = scene.port()
    await asyncio.wait_for(again.drain(OP, 60), 180)
    writes = [
        (seconds(event["stageTimestamp"]), notes[DRAIN_BEGINS])
        for event in scene.cluster.audit()
        if event["verb"] == "patch" and (event.get("objectRef") or {}).get("name") == scene.node
        if DRAIN_BEGINS in (notes := event["responseObject"]["metadata"].get("annotations") or {})
    ]
    assert {written for _, written in writes} == {note}, "the second process found the time of the first one"
    (began,) = [at for _, at in evicted(scene)]
    assert began - min(at for at, _ in writes) >= 6 - 0.05
    assert began >= seconds(note.partition(" ")[0])
    await again.uncordon(OP)
    node = scene.cluster.admin.get(scene.path)
    assert DRAIN_BEGINS not in node["metadata"].get("annotations", {})
    assert "unschedulable" not in node["spec"]


async def test_the_lead_time_under_a_cordon_of_an_admin(scene: Scene) -> None:
    """Its time is not known, so it is given in full, and the cordon stays that of the admin."""
    scene.policy = DrainPolicy(lead_time=3)
    scene.cluster.admin.patch(scene.path, {"spec": {"unschedulable": True}})
    scene.pod("web")
    began = time.time()  # noqa: TID251 - compared with the audit log
    port = scene.port()
    await port.drain(OP, 60)
    assert [at - began >= 3 for _, at in evicted(scene)] == [True]
    await port.uncordon(OP)
    node = scene.cluster.admin.get(scene.path)
    assert node["spec"]["unschedulable"] is True
    assert DRAIN_BEGINS not in node["metadata"].get("annotations", {})
