# SPDX-License-Identifier: Apache-2.0
"""The pods that hold an update off, from a server that answers as an API server, and as it should not."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from nodeagent.errors import AgentError
from nodeagent.features.busy_pods.events import BusyPod
from nodeagent.features.busy_pods.pods import KubeBusyPods
from nodeagent.features.busy_pods.settings import BusyPodSettings
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from tests.kube.server import CUT, HANG, Answer, Request, serving
from tests.kube.test_client import Clock, kubeconfig

SECRET = "very-secret-token"


def pod(name: str, *, namespace: str = "ci", phase: str = "Running", node: str = "n", **meta: Any) -> dict[str, Any]:
    about = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", "resourceVersion": "1", **meta}
    return {"metadata": about, "spec": {"nodeName": node}, "status": {"phase": phase}}


async def read(
    directory: Path, answer: Any, *, timeout: float = 20.0, **settings: Any
) -> tuple[Sequence[str] | str, list[dict[str, list[str]]]]:
    """Return the pods, or the reason and the message of an error; and the queries of the requests."""
    about = BusyPodSettings(**{"selectors": ("app=backup",), **settings})
    async with serving(None) as server:
        server.answer = answer if inspect.isfunction(answer) else lambda _request: answer
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token=SECRET)
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=10.0) as client:
            found: Sequence[str] | str
            try:
                found = [str(pod) for pod in await KubeBusyPods(client, "n", about, timeout).running()]
            except AgentError as error:
                assert SECRET not in error.message
                found = f"{error.reason}: {error.message}"
        targets = [urlsplit(request.target) for request in server.requests]
        assert {target.path for target in targets} <= {"/api/v1/pods"}
        return found, [parse_qs(target.query) for target in targets]


def listed(*pods: dict[str, Any]) -> Answer:
    return Answer(body={"metadata": {}, "items": list(pods)})


async def test_the_server_filters_by_node_phase_and_labels(tmp_path: Path) -> None:
    found, queries = await read(tmp_path, listed(pod("b"), pod("a")))
    assert found == ["ci/a", "ci/b"]
    assert queries == [
        {
            "limit": ["500"],
            "fieldSelector": ["spec.nodeName=n,status.phase!=Succeeded,status.phase!=Failed"],
            "labelSelector": ["app=backup"],
        }
    ]


async def test_a_pod_of_two_selectors_counts_once(tmp_path: Path) -> None:
    found, queries = await read(tmp_path, listed(pod("a")), selectors=("a in (b, c)", "!d"))
    assert (found, [query["labelSelector"] for query in queries]) == (["ci/a"], [["a in (b, c)"], ["!d"]])


async def test_each_pod_has_the_first_selector_that_matches_it(tmp_path: Path) -> None:
    async with serving(listed(pod("b")), listed(pod("a"), pod("b"))) as server:
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(tmp_path)), Clock()) as client:
            found = await KubeBusyPods(client, "n", BusyPodSettings(selectors=("x", "y"))).running()
    assert found == [BusyPod("ci", "a", "y"), BusyPod("ci", "b", "x")]


async def test_pods_of_other_namespaces_hold_nothing(tmp_path: Path) -> None:
    pods = listed(pod("a"), pod("b", namespace="db"), pod("c", namespace="web"))
    assert (await read(tmp_path, pods, namespaces=("web", "ci")))[0] == ["ci/a", "web/c"]


@pytest.mark.parametrize(
    ("phase", "meta", "holds"),
    [
        ("Pending", {}, True),
        ("Running", {}, True),
        ("Unknown", {}, True),
        ("Running", {"deletionTimestamp": "2026-11-28T10:00:00Z"}, True),
        ("Succeeded", {}, False),
        ("Failed", {}, False),
    ],
)
async def test_a_pod_holds_until_it_has_finished_or_is_gone(
    tmp_path: Path, phase: str, meta: dict[str, Any], holds: bool
) -> None:
    assert bool((await read(tmp_path, listed(pod("a", phase=phase, **meta))))[0]) is holds


async def test_many_pods_come_in_parts(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        if "continue=more" in request.target:
            return listed(pod("last"))
        return Answer(body={"metadata": {"continue": "more"}, "items": [pod(f"p{n}") for n in range(40)]})

    found, queries = await read(tmp_path, answer)
    assert (len(found), len(queries)) == (41, 2)


async def test_without_selectors_nothing_is_requested(tmp_path: Path) -> None:
    assert await read(tmp_path, listed(pod("a")), selectors=()) == ([], [])


def without(key: str) -> dict[str, Any]:
    odd = pod("a")
    del odd["metadata"][key]
    return odd


@pytest.mark.finding(
    "attack: answers of an API server", "An object of another form is a fault of the server for every reader."
)
@pytest.mark.parametrize(
    "answer",
    [
        Answer(503),
        Answer(429, {"message": "slow down"}),
        Answer(400, {"message": "unable to parse requirement"}),
        Answer(404),
        Answer(410, {"reason": "Expired"}),
        Answer(401),
        Answer(body="<html>"),
        Answer(body={"items": "many"}),
        Answer(body={"items": [7]}),
        listed(without("name")),
        listed(without("namespace")),
        listed(without("uid")),
        listed({**pod("a"), "spec": {"nodeName": 7}}),
        listed({**pod("a"), "status": {"phase": []}}),
        listed(pod("a", node="another")),
        listed({**pod("a"), "spec": None}),
        CUT,
    ],
    ids=lambda answer: str(getattr(answer, "status", "cut")),
)
async def test_without_a_usable_answer_it_is_not_known(tmp_path: Path, answer: Any) -> None:
    found, _ = await read(tmp_path, answer)
    assert isinstance(found, str)
    assert found.startswith("BusyPodsUnknown: it is not known which pods run on this node: ")


async def test_a_server_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    found, _ = await read(tmp_path, HANG, timeout=0.2)
    assert found == "BusyPodsUnknown: it is not known which pods run on this node: no answer in 0.2 s"


async def test_a_right_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeagent.kube.client.FORBIDDEN_ATTEMPTS", 1)
    message = 'pods is forbidden: User "nodeagent" cannot list resource "pods"'
    found, _ = await read(tmp_path, Answer(403, {"message": message}))
    assert isinstance(found, str)
    assert found.startswith("KubeForbidden: ")
    assert message in found


async def test_another_selector_counts_from_the_next_check_on(tmp_path: Path) -> None:
    async with serving(listed(), listed(pod("a"))) as server:
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(tmp_path)), Clock()) as client:
            pods = KubeBusyPods(client, "n", BusyPodSettings(selectors=("a",)))
            assert await pods.running() == []
            pods.settings = BusyPodSettings(selectors=("b",))
            assert await pods.running() == [BusyPod("ci", "a", "b")]
