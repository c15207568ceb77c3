# SPDX-License-Identifier: Apache-2.0
"""The drain beside the real ``kubectl drain``: two nodes with the same pods, and the same pods left and evicted."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from integration.cluster.cluster import ADMINS, Cluster
from integration.cluster.other_holders import client_of
from integration.cluster.test_drain import OP, Scene
from nodeagent.errors import Refused
from nodeagent.features.cluster import drain as module
from nodeagent.features.cluster.decide import drain as decisions
from nodeagent.features.cluster.decide.drain import DrainPolicy

FORCE, EMPTY_DIR = "--force", "--delete-emptydir-data"
BLOCKED: Final = 7.0  # seconds for a drain that cannot end: kubectl tries a pod again after five
ENOUGH: Final = 60.0
MIRROR: Final = {"kubernetes.io/config.mirror": "hash"}
SCRATCH: Final = {"volumes": [{"name": "v", "emptyDir": {}}]}
DISK: Final = {"volumes": [{"name": "v", "hostPath": {"path": "/data"}}]}
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL", 0.2)
    monkeypatch.setattr(module, "SETTLE", 0.5)
    monkeypatch.setattr(decisions, "FIRST_PAUSE", 0.5)
    monkeypatch.setattr(decisions, "LAST_PAUSE", 1.0)


@dataclass
class Outcome:
    done: bool
    left: list[str]
    evicted: set[str]
    """Of which the API server accepted an eviction, by its audit log."""

    words: str = field(compare=False, default="")


@dataclass
class Pair:
    """The same pods on a node for each of the two."""

    cluster: Cluster
    kubectl: Path
    ours: Scene
    theirs: Scene

    async def drained(self, make: Callable[[Scene], None], *options: str, timeout: float = ENOUGH) -> Outcome:
        """Return the result of both; fails if they differ."""
        for scene in (self.ours, self.theirs):
            await asyncio.to_thread(make, scene)
        self.ours.policy = DrainPolicy(unmanaged=FORCE in options, local_data=EMPTY_DIR in options)
        said, words = await asyncio.gather(self._drain(timeout), self._kubectl(*options, timeout=timeout))
        mine, other = self._outcome(self.ours, said), self._outcome(self.theirs, words)
        assert mine == other, f"nodeagent: {said}\nkubectl: {words}"
        return mine

    async def _drain(self, timeout: float) -> str:
        try:
            await self.ours.port().drain(OP, timeout)
        except Refused as error:
            return str(error)
        return ""

    async def _kubectl(self, *options: str, timeout: float) -> str:
        """ "" if it drained the node, else what it wrote."""
        process = await asyncio.create_subprocess_exec(
            self.kubectl,
            self.theirs.node,
            "--ignore-daemonsets",
            *options,
            f"--timeout={timeout:g}s",
            f"--kubeconfig={self.cluster.kubeconfig('kubectl', [ADMINS])}",
            env={"HOME": str(self.cluster.directory), "PATH": os.environ["PATH"]},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(timeout + 30):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        return "" if process.returncode == 0 else output.decode()

    def _outcome(self, scene: Scene, words: str) -> Outcome:
        found = [(event.get("objectRef", {}), event["responseStatus"]["code"]) for event in self.cluster.audit()]
        evicted = {
            _either(ref["name"])
            for ref, code in found
            if (ref.get("namespace"), ref.get("subresource"), code) == (scene.namespace, "eviction", 201)
        }
        return Outcome(not words, [_either(name) for name in scene.names()], evicted, words)


@pytest.fixture
async def pair(cluster: Cluster, kubectl: Path, make_node: Callable[[], str]) -> AsyncIterator[Pair]:
    number = next(_numbers)
    async with AsyncExitStack() as stack:
        scenes = []
        for who in ("ours", "theirs"):
            namespace = f"beside-{number}-{who}"
            cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
            client = await stack.enter_async_context(client_of(cluster))
            scenes.append(Scene(cluster, client, make_node(), namespace))
        kubelets = [asyncio.create_task(scene.kubelet()) for scene in scenes]
        yield Pair(cluster, kubectl, *scenes)
        for kubelet in kubelets:
            kubelet.cancel()
            with suppress(asyncio.CancelledError):
                await kubelet


def _either(name: str) -> str:
    """Of two pods of which one may go, chance decides which."""
    return "two" if name.startswith("two-") else name


def owned(name: str) -> dict[str, Any]:
    """By something that is not its controller."""
    return {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": "u"}]}


def ordinary(scene: Scene) -> None:
    for kind in ("ReplicaSet", "StatefulSet", "Job", "Thing"):
        scene.pod(kind.lower(), kind=kind)
    scene.pod("owned", kind="", **owned("owned"))
    scene.pod("waiting", phase="Pending")
    scene.pod("at-once", spec={"terminationGracePeriodSeconds": 0})
    scene.pod("scratch", spec=SCRATCH)
    scene.pod("disk", spec=DISK)
    for phase in ("Running", "Succeeded", "Failed"):
        word = phase.lower()
        scene.pod(f"set-{word}", phase=phase)
        scene.pod(f"bare-{word}", kind="", phase=phase)
        scene.pod(f"daemon-{word}", kind="DaemonSet", phase=phase)
        scene.daemon_set(f"daemon-{word}-set")
        scene.pod(f"orphan-{word}", kind="DaemonSet", phase=phase)
    scene.pod("daemon-scratch", kind="DaemonSet", spec=SCRATCH)
    scene.daemon_set("daemon-scratch-set")
    scene.pod("static", kind="", annotations=MIRROR)
    scene.pod("static-finished", kind="", phase="Succeeded", annotations=MIRROR)
    scene.pod("sourced", kind="", annotations={"kubernetes.io/config.source": "file"})


@pytest.mark.finding(
    "peers: kubectl drain",
    "A drain evicts and leaves the same pods as the real `kubectl drain` with the same options.",
)
async def test_the_same_pods_go_and_stay(pair: Pair) -> None:
    outcome = await pair.drained(ordinary, FORCE, EMPTY_DIR)
    assert outcome.done
    assert outcome.left == ["daemon-running", "daemon-scratch", "static", "static-finished"]


def budgets(scene: Scene) -> None:
    scene.pod("free")
    scene.pod("none")
    scene.budget("none", "none", allowed=0)
    for name in ("two-a", "two-b"):
        scene.pod(name, labels={"app": "two"})
    scene.budget("two", "two", allowed=1)
    scene.pod("finished", phase="Succeeded")
    scene.budget("finished", "finished", allowed=0)
    for name, policy in (("always", "AlwaysAllow"), ("healthy", "IfHealthyBudget")):
        scene.pod(name)
        unready = {"conditions": [{"type": "Ready", "status": "False"}]}
        scene.cluster.admin.patch(f"{scene.pods}/{name}/status", {"status": unready})
        scene.budget(name, name, allowed=0)
        path = f"/apis/policy/v1/namespaces/{scene.namespace}/poddisruptionbudgets/{name}"
        scene.cluster.admin.patch(path, {"spec": {"unhealthyPodEvictionPolicy": policy}})
        scene.cluster.admin.patch(f"{path}/status", {"status": {"currentHealthy": 0, "observedGeneration": 2}})


@pytest.mark.finding(
    "peers: kubectl drain",
    "A drain evicts and leaves the same pods as the real `kubectl drain` with the same options.",
)
async def test_budgets_keep_the_same_pods(pair: Pair) -> None:
    outcome = await pair.drained(budgets, FORCE, EMPTY_DIR, timeout=BLOCKED)
    assert not outcome.done
    assert outcome.left == ["healthy", "none", "two"]


@pytest.mark.finding(
    "peers: kubectl drain",
    "A drain evicts and leaves the same pods as the real `kubectl drain` with the same options.",
)
@pytest.mark.parametrize(("options", "kept"), [((EMPTY_DIR,), "bare"), ((FORCE,), "scratch"), ((), "orphan")])
async def test_what_is_protected_keeps_all_pods(pair: Pair, options: tuple[str, ...], kept: str) -> None:
    def make(scene: Scene) -> None:
        scene.pod("web")
        match kept:
            case "bare":
                scene.pod("bare", kind="")
            case "scratch":
                scene.pod("scratch", spec=SCRATCH)
            case _:
                scene.pod("orphan", kind="DaemonSet")

    outcome = await pair.drained(make, *options, timeout=BLOCKED)
    assert (outcome.done, outcome.left, outcome.evicted) == (False, sorted(["web", kept]), set())
