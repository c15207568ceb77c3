# SPDX-License-Identifier: Apache-2.0
"""The drain against a server in this process: what an API server with a kubelet does not do on request."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import Refused
from nodeagent.features.cluster.decide.drain import DrainPolicy, is_blocked
from nodeagent.features.cluster.decide.drain_order import DrainOrder
from nodeagent.features.cluster.drain import DRAIN_BEGINS, TOGETHER, KubeNode
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.reasons import Reason
from tests.kube.server import Answer, Request, Stream, serving
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
            return Answer(body=NODE) if path.rpartition("/")[2] in self.sets else Answer(404, {"message": "not found"})
        return Answer(body=NODE)


def pod(name: str, kind: str = "ReplicaSet", owner: str = "o", space: str = "ns") -> dict[str, Any]:
    owners = [{"kind": kind, "name": owner, "uid": owner, "controller": True}]
    about = {"namespace": space, "name": name, "uid": name, "resourceVersion": "1", "ownerReferences": owners}
    return {"metadata": about, "spec": {}}


async def drain(
    directory: Path, api: Api, check_lease: Any, deadline: float = 20.0, timeout: float = 10.0, **options: Any
) -> str:
    """The reason with which it ended. ``timeout`` is that of the client."""
    async with serving(None) as server:
        server.answer = api
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=timeout) as client:
            with pytest.raises(Refused) as caught:
                await KubeNode(client, "n", Clock(), check_lease=check_lease, **options).drain("op", deadline)
    return caught.value.reason


@pytest.mark.finding(
    "leases: lost while users are warned",
    "A lease that is lost in the middle of a round of evictions ends it after twenty at most.",
)
async def test_a_lease_that_is_lost_in_a_round_ends_it_after_a_few_evictions(tmp_path: Path) -> None:
    checks = 0

    async def check_lease(_: str) -> None:
        nonlocal checks
        checks += 1
        if checks == 3:
            raise Refused("another holder took it", reason=Reason.LEASE_LOST)

    api = Api([pod(f"p{number}") for number in range(110)])
    assert await drain(tmp_path, api, check_lease) == "LeaseLost"
    assert len(api.evicted) == 1 + TOGETHER


@pytest.mark.finding(
    "cluster: namespaces of many pods", "An eviction that takes long is waited for, and one is made at a time."
)
async def test_slow_evictions_are_waited_for_and_made_one_at_a_time(tmp_path: Path) -> None:
    """An API server compares each one with all pods of its namespace."""
    groups = [0]

    async def check_lease(_: str) -> None:
        groups.append(len(api.evicted))
        if len(api.evicted) == len(api.pods):
            raise Refused("another holder took it", reason=Reason.LEASE_LOST)

    class Slow(Api):
        def __call__(self, request: Request) -> Answer | Stream:
            answer = super().__call__(request)
            many = request.target.endswith("/eviction") and "/namespaces/many/" in request.target
            return Stream([(2.5, b"{}")]) if many else answer

    api = Slow([pod(f"m{number}", space="many") for number in range(3)] + [pod(f"p{number}") for number in range(30)])
    assert await drain(tmp_path, api, check_lease, timeout=1.0) == "LeaseLost"
    assert sorted(api.evicted) == sorted(each["metadata"]["name"] for each in api.pods), "none was made again"
    # One of each namespace first, and then one that is slow beside many that are not.
    ends = [found for earlier, found in pairwise(groups) if found > earlier]
    made = [api.evicted[begin:end] for begin, end in pairwise([0, *ends])]
    assert [len(names) for names in made] == [2, 20, 11]
    assert [sum(name[0] == "m" for name in names) for names in made] == [1, 1, 1]


@pytest.mark.finding("peers: kubectl drain", "Each DaemonSet is asked for once in a drain.")
async def test_a_daemon_set_is_read_once(tmp_path: Path) -> None:
    async def check_lease(_: str) -> None: ...

    pods = [pod(f"a{number}", "DaemonSet", "there") for number in range(3)]
    api = Api([*pods, pod("b", "DaemonSet", "gone")], sets=("there",))
    assert await drain(tmp_path, api, check_lease, deadline=3.0) == "DrainTimedOut"
    assert (sorted(api.asked), api.evicted) == (["gone", "there"], ["b"])


class Leading(Api):
    """A node that stores its annotations. ``forget`` are answers to patches that are conflicts."""

    def __init__(self, pods: list[dict[str, Any]], notes: dict[str, str]) -> None:
        super().__init__(pods)
        self.notes = notes
        self.patches: list[dict[str, Any]] = []

    def __call__(self, request: Request) -> Answer:
        path = request.target.partition("?")[0]
        if path == "/api/v1/nodes/n":
            if request.method == "PATCH":
                body = request.body
                self.patches.append(body)
                for key, value in body["metadata"]["annotations"].items():
                    self.notes = (
                        {**self.notes, key: value} if value else {k: v for k, v in self.notes.items() if k != key}
                    )
            meta = {**NODE["metadata"], "annotations": self.notes}
            return Answer(body={"metadata": meta, "spec": {"unschedulable": True}})
        return super().__call__(request)


@pytest.mark.parametrize("note", ["", "2026-11-24T02:00:00Z other", "tomorrow 0p", "2999-01-01T00:00:00Z op"])
async def test_a_lead_time_that_is_not_known_is_waited_for(tmp_path: Path, note: str) -> None:
    async def check_lease(_: str) -> None: ...

    api = Leading([pod("a")], {DRAIN_BEGINS: note} if note else {})
    policy = DrainPolicy(lead_time=3600)
    assert await drain(tmp_path, api, check_lease, deadline=3.0, policy=policy) == "DrainTimedOut"
    assert api.evicted == []
    (patch,) = api.patches
    assert list(patch["metadata"]["annotations"]) == [DRAIN_BEGINS], "the cordon is that of another actor"
    assert api.notes[DRAIN_BEGINS].endswith("Z op")


@pytest.mark.parametrize("lead_time", [3600, 0])
async def test_a_lead_time_is_waited_for_at_the_pace_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lead_time: float
) -> None:
    """It may take an hour, and the API server is asked every 15 s in it."""
    monkeypatch.setattr("nodeagent.features.cluster.drain.POLL", 0.05)
    rounds = 0

    async def check_lease(_: str) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 9:
            raise Refused("enough", reason=Reason.LEASE_LOST)

    api, policy = Leading([pod("a")], {}), DrainPolicy(lead_time=lead_time)
    deadline = 2.0 if lead_time else 60.0
    ended = await drain(tmp_path, api, check_lease, deadline=deadline, policy=policy)
    assert (ended, rounds <= 2) == (("DrainTimedOut", True) if lead_time else ("LeaseLost", False))


async def test_a_lead_time_that_is_over_is_not_begun_again(tmp_path: Path) -> None:
    async def check_lease(_: str) -> None: ...

    api = Leading([pod("a")], {DRAIN_BEGINS: "2026-01-01T00:00:00Z op"})
    policy = DrainPolicy(lead_time=3600)
    assert await drain(tmp_path, api, check_lease, deadline=3.0, policy=policy) == "DrainTimedOut"
    assert (api.evicted, api.patches) == (["a"], [])


async def test_the_steps_of_a_drain(tmp_path: Path) -> None:
    async def check_lease(_: str) -> None: ...

    pods = [pod("a"), pod("b"), pod("c")]
    pods[0]["metadata"]["labels"], pods[2]["metadata"]["labels"] = {"last": "yes"}, {"first": "yes"}
    api = Api(pods)
    policy = DrainPolicy(order=DrainOrder(("first",), ("last",)))
    seen: list[Any] = []
    assert await drain(tmp_path, api, check_lease, deadline=3.0, policy=policy, report=seen.append) == "DrainTimedOut"
    assert api.evicted == ["c"]
    why = {one.name: one.why for one in seen[-1]}
    assert why == dict.fromkeys("ab", "evicted after the pods of an earlier step: ns/c") | {"c": "eviction requested"}
    assert not any(is_blocked(one) for one in seen[-1])
