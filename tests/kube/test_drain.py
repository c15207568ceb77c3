"""The drain against a server in this process: what an API server with a kubelet does not do on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import Refused
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.kube.drain import TOGETHER, KubeNode
from nodeagent.reasons import Reason
from tests.kube.server import Answer, Request, serving
from tests.kube.test_client import Clock, kubeconfig

NODE = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}, "spec": {"unschedulable": True}}


class Api:
    """A cordoned node with pods that nothing evicts, and ``sets`` that exist."""

    def __init__(self, pods: list[dict[str, Any]], sets: tuple[str, ...] = ()) -> None:
        self.pods = pods
        self.sets = sets
        self.evicted: list[str] = []
        self.asked: list[str] = []

    def __call__(self, request: Request) -> Answer:
        path = request.target.partition("?")[0]
        if path.endswith("/eviction"):
            self.evicted.append(path.split("/")[-2])
            return Answer(201, {"kind": "Status"})
        if path == "/api/v1/pods":
            return Answer(body={"items": self.pods, "metadata": {}})
        if "/daemonsets/" in path:
            self.asked.append(path.rpartition("/")[2])
            return Answer(body={}) if path.rpartition("/")[2] in self.sets else Answer(404, {"message": "not found"})
        return Answer(body=NODE)


def pod(name: str, kind: str = "ReplicaSet", owner: str = "o") -> dict[str, Any]:
    owners = [{"kind": kind, "name": owner, "controller": True}]
    return {"metadata": {"namespace": "ns", "name": name, "uid": name, "ownerReferences": owners}, "spec": {}}


async def drain(directory: Path, api: Api, check_lease: Any, deadline: float = 20.0) -> str:
    """The reason with which it ended."""
    async with serving(None) as server:
        server.answer = api
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=2.0) as client:
            with pytest.raises(Refused) as caught:
                await KubeNode(client, "n", Clock(), check_lease=check_lease).drain("op", deadline)
    return caught.value.reason


async def test_a_lease_that_is_lost_in_a_round_ends_it_after_a_few_evictions(tmp_path: Path) -> None:
    checks = 0

    async def check_lease(_: str) -> None:
        nonlocal checks
        checks += 1
        if checks == 3:
            raise Refused("another holder took it", reason=Reason.LEASE_LOST)

    api = Api([pod(f"p{number}") for number in range(110)])
    assert await drain(tmp_path, api, check_lease) == "LeaseLost"
    assert len(api.evicted) == 2 * TOGETHER


async def test_a_daemon_set_is_read_once(tmp_path: Path) -> None:
    async def check_lease(_: str) -> None: ...

    pods = [pod(f"a{number}", "DaemonSet", "there") for number in range(3)]
    api = Api([*pods, pod("b", "DaemonSet", "gone")], sets=("there",))
    assert await drain(tmp_path, api, check_lease, deadline=1.0) == "DrainTimedOut"
    assert (sorted(api.asked), api.evicted) == (["gone", "there"], ["b"])
