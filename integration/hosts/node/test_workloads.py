# SPDX-License-Identifier: Apache-2.0
"""Drains of real pods by nodeagent, beside the real ``kubectl drain`` on a second node with the same pods."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from integration.cluster.api import Object
from integration.cluster.cluster import ADMINS, Cluster
from integration.hosts import nodeagent_client as agent
from integration.hosts.node.conftest import NodeMaker
from integration.hosts.node.controllers import Controllers
from integration.hosts.node.node_host import MANIFESTS, NodeHost, pod_ready
from integration.hosts.node.workloads import pod, template, workload

ENOUGH = 90.0  # seconds for a drain on a busy machine
FINALIZER = "nodeagent.org/test"
KILLED = 137  # exit status of a container that was killed


class Scene:
    """A node, and a namespace for its pods."""

    def __init__(self, node: NodeHost) -> None:
        self.node = node
        self.admin = node.cluster.admin
        self.namespace = f"on-{node.node}"
        self.admin.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def create(self, group: str, kind: str, body: Object) -> None:
        self.admin.create(f"/{group}/namespaces/{self.namespace}/{kind}", body)

    def pod(self, name: str, spec: Object, **metadata: Any) -> None:
        self.create("api/v1", "pods", pod(name, {**spec, "nodeName": self.node.node}, **metadata))

    def deployment(self, name: str, replicas: int) -> None:
        """Create a Deployment whose pods run on this node only."""
        spec = workload(serve=True, grace=2, nodeSelector={"kubernetes.io/hostname": self.node.node})
        body = {"metadata": {"name": name}, "spec": {"replicas": replicas, **template(name, spec)}}
        self.create("apis/apps/v1", "deployments", body)

    def budget(self, app: str, least: int) -> None:
        spec = {"minAvailable": least, "selector": {"matchLabels": {"app": app}}}
        self.create("apis/policy/v1", "poddisruptionbudgets", {"metadata": {"name": app}, "spec": spec})

    def cordon(self) -> None:
        """Cordon the node, and return when the scheduler knows it: it may be behind by a pod or two."""
        self.admin.patch(f"/api/v1/nodes/{self.node.node}", {"spec": {"unschedulable": True}})
        refused = map(self._is_refused, itertools.count())
        self.node.wait_for(lambda: next(refused), "the scheduler refuses a pod", ENOUGH)

    def _is_refused(self, number: int) -> bool:
        name = f"refused-{number}"
        spec = workload(nodeSelector={"kubernetes.io/hostname": self.node.node})
        self.create("api/v1", "pods", pod(name, spec))
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"

        def scheduled() -> list[str]:
            conditions = self.admin.get(path)["status"].get("conditions", [])
            return [each["status"] for each in conditions if each["type"] == "PodScheduled"]

        answer: list[str] = self.node.wait_for(scheduled, f"the scheduler has looked at {name}", ENOUGH)
        self.admin.delete(path)
        self.node.wait_for(lambda: name not in self.node.pods(), f"{name} is gone", ENOUGH)
        return answer == ["False"]

    def static_pod(self) -> None:
        manifest = {"apiVersion": "v1", "kind": "Pod", **pod("static", workload(hostNetwork=True))}
        manifest["metadata"]["namespace"] = self.namespace
        self.node.write(f"{MANIFESTS}/static.yaml", json.dumps(manifest))

    def wait_ready(self, count: int) -> None:
        """Wait until so many pods are ready on the node, and the others have finished."""

        def ready() -> bool:
            return sum(pod_ready(found) for found in self.node.pods().values()) == count

        self.node.wait_for(ready, f"{count} pods are ready", ENOUGH)

    def left(self) -> list[str]:
        """Names of the pods on the node, with that of its Deployment or DaemonSet in place of a generated one."""
        return sorted(found["metadata"]["labels"].get("app", name) for name, found in self.node.pods().items())

    def has_left(self, names: list[str]) -> bool:
        return self.left() == names


class Pair:
    """The same pods on a node for each of the two."""

    def __init__(self, ours: NodeHost, theirs: NodeHost, kubectl: Path) -> None:
        self.ours, self.theirs = Scene(ours), Scene(theirs)
        self._kubectl = kubectl

    def make(self, pods: Callable[[Scene], None], ready: int) -> None:
        for scene in (self.ours, self.theirs):
            pods(scene)
        for scene in (self.ours, self.theirs):
            scene.wait_ready(ready)

    def begin(self) -> subprocess.Popen[bytes]:
        """Start both drains, and return that of kubectl."""
        cluster = self.theirs.node.cluster
        options = ["--ignore-daemonsets", "--force", "--delete-emptydir-data", f"--timeout={ENOUGH:g}s"]
        drain = subprocess.Popen(
            [self._kubectl, self.theirs.node.node, *options, f"--kubeconfig={cluster.kubeconfig('kubectl', [ADMINS])}"],
            env={"HOME": str(cluster.directory), "PATH": os.environ["PATH"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.ours.node.run(["nodeagent", "maintenance", "start", "--reason", "test", "--drain"], timeout=ENOUGH)
        return drain

    def wait_left(self, names: list[str]) -> None:
        for scene in (self.ours, self.theirs):
            scene.node.wait_for(partial(scene.has_left, names), f"{names} are left", ENOUGH)

    def wait_drained(self, drain: subprocess.Popen[bytes]) -> None:
        output, _ = drain.communicate(timeout=ENOUGH)
        assert drain.returncode == 0, output.decode()
        node = self.ours.node
        node.wait_for(lambda: agent.status(node)["maintenance"]["state"] == "under way", "it is drained", ENOUGH)


@pytest.fixture
def pair(make_agent_node: NodeMaker, make_node: NodeMaker, controllers: Controllers, kubectl: Path) -> Iterator[Pair]:
    # The control plane serves all tests of a worker: pods of another test must not come to these nodes.
    suffix = secrets.token_hex(2)
    theirs = make_node(f"theirs-{suffix}")
    theirs.boot()
    ours = make_agent_node(f"ours-{suffix}")
    theirs.wait_ready()
    made = Pair(ours, theirs, kubectl)
    yield made
    for scene in (made.ours, made.theirs):
        scene.admin.delete(f"/api/v1/namespaces/{scene.namespace}")


def ended(scene: Scene, name: str) -> tuple[int, float] | None:
    """Exit status and time of the end of the container of a pod that a finalizer keeps; None while it runs."""
    found = scene.admin.get(f"/api/v1/namespaces/{scene.namespace}/pods/{name}")
    state = found["status"]["containerStatuses"][0]["state"].get("terminated")
    return (state["exitCode"], datetime.fromisoformat(state["finishedAt"]).timestamp()) if state else None


def release(cluster: Cluster, scene: Scene, *names: str) -> None:
    for name in names:
        cluster.admin.patch(f"/api/v1/namespaces/{scene.namespace}/pods/{name}", {"metadata": {"finalizers": None}})


def evictors(cluster: Cluster, scene: Scene) -> set[str]:
    """Return the users who evicted pods of the scene."""
    targets = ((event["user"]["username"], event.get("objectRef", {})) for event in cluster.audit())
    return {
        user
        for user, target in targets
        if target.get("subresource") == "eviction" and target["namespace"] == scene.namespace
    }


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_same_pods_go_and_stay_as_with_kubectl(pair: Pair, control_plane: Cluster) -> None:
    def pods(scene: Scene) -> None:
        scene.pod("quick", workload())
        scene.pod("scratch", workload(scratch=True))
        scene.pod("finished", workload(exit_after="100ms", restartPolicy="Never"))
        scene.pod("slow", workload(linger="4s", grace=20), finalizers=[FINALIZER])
        scene.pod("stubborn", workload(linger="forever", grace=3), finalizers=[FINALIZER])
        scene.static_pod()
        scene.create(
            "apis/apps/v1", "daemonsets", {"metadata": {"name": "daemon"}, "spec": template("daemon", workload())}
        )

    # Each DaemonSet has a pod on the other node, too.
    pair.make(pods, ready=7)
    begun = time.time()  # noqa: TID251 - compared with times of the kubelet
    drain = pair.begin()
    pair.wait_left(["daemon", "daemon", "slow", "static", "stubborn"])
    for scene in (pair.ours, pair.theirs):
        status, at = scene.node.wait_for(partial(ended, scene, "slow"), "the slow pod has ended", ENOUGH)
        assert status == 0, "it had the time that it needed"
        assert at >= begun + 3
        status, at = scene.node.wait_for(partial(ended, scene, "stubborn"), "the stubborn pod has ended", ENOUGH)
        assert status == KILLED
        assert at >= begun + 2, "it had its grace period"
    time.sleep(6)  # longer than it takes to see an empty node twice
    assert drain.poll() is None
    assert agent.status(pair.ours.node)["maintenance"]["state"] == "draining"
    for scene in (pair.ours, pair.theirs):
        release(control_plane, scene, "slow", "stubborn")
    pair.wait_drained(drain)
    assert pair.ours.left() == pair.theirs.left() == ["daemon", "daemon", "static"]
    assert evictors(control_plane, pair.ours) == {f"system:node:{pair.ours.node.node}"}, "by the rights of its kubelet"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_budget_keeps_the_same_pods_as_with_kubectl_until_it_allows_more(pair: Pair) -> None:
    def pods(scene: Scene) -> None:
        scene.pod("free", workload())
        scene.deployment("web", 2)
        scene.budget("web", 1)

    pair.make(pods, ready=3)
    for scene in (pair.ours, pair.theirs):
        scene.cordon()
    drain = pair.begin()
    pair.wait_left(["web"])
    # The pod in place of the evicted one has nowhere to run, so the budget stays used up.
    node = pair.ours.node
    why = node.wait_for(lambda: agent.status(node)["drain"]["remaining"], "the drain names what is left", ENOUGH)
    assert "web" in json.dumps(why)
    assert drain.poll() is None
    for scene in (pair.ours, pair.theirs):
        path = f"/apis/policy/v1/namespaces/{scene.namespace}/poddisruptionbudgets/web"
        scene.admin.patch(path, {"spec": {"minAvailable": 0}})
    pair.wait_drained(drain)
    assert pair.ours.left() == pair.theirs.left() == []
