# SPDX-License-Identifier: Apache-2.0
"""Answers of another form than the API's, from a gateway or a broken server: every adapter takes them for a fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from integration.fuzz.api import WHOLE
from nodeagent.features.cluster import drain as kube_drain
from nodeagent.features.cluster.controller_drain import ControllerDrain
from nodeagent.features.cluster.decide.conditions import NodeState
from nodeagent.features.cluster.decide.drain import DrainPolicy
from nodeagent.features.cluster.decide.machine_config_node import UpdateProgress
from nodeagent.features.cluster.drain import DrainRounds, KubeNode
from nodeagent.features.cluster.gates import KubeGates
from nodeagent.features.cluster.lease import KubeLease
from nodeagent.features.cluster.node import ControlledNodeConditions, KubeReadiness
from nodeagent.features.cluster.node_events import NodeEvents
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.report.node_events import NodeEvent
from nodeagent.update.states import Phase
from tests.features.cluster.test_drain import Api, pod
from tests.features.cluster.test_lease import Memory
from tests.kube.odd_answers import HOST, MISSING, Readers, odd, read_all
from tests.kube.server import Answer, Request, serving
from tests.kube.test_client import Clock, kubeconfig

ODD: Final[list[tuple[str, Any]]] = [
    ("metadata", MISSING),
    ("metadata", None),
    ("metadata", []),
    ("metadata", "x"),
    ("metadata.name", MISSING),
    ("metadata.name", None),
    ("metadata.name", ""),
    ("metadata.name", 7),
    ("metadata.uid", MISSING),
    ("metadata.uid", []),
    ("metadata.namespace", MISSING),
    ("metadata.namespace", {}),
    ("metadata.resourceVersion", 7),
    ("metadata.generation", "2"),
    ("metadata.labels", ["x"]),
    ("metadata.labels", {"a": 1}),
    ("metadata.annotations", {"a": None}),
    ("metadata.annotations", "x"),
    ("metadata.ownerReferences", {"kind": "Node"}),
    ("metadata.ownerReferences", [None]),
    ("metadata.ownerReferences", [{"kind": [], "controller": "yes"}]),
    ("metadata.ownerReferences", [{"controller": True}]),
    ("metadata.finalizers", [1]),
    ("metadata.deletionTimestamp", 5),
    ("metadata.deletionGracePeriodSeconds", "30"),
    ("spec", []),
    ("spec", 7),
    ("spec.unschedulable", "yes"),
    ("spec.taints", {}),
    ("spec.taints", [None]),
    ("spec.taints", [{"key": []}]),
    ("spec.taints", [{"effect": "NoSchedule"}]),
    ("spec.volumes", "x"),
    ("spec.volumes", [7]),
    ("spec.terminationGracePeriodSeconds", "30"),
    ("spec.nodeName", {}),
    ("spec.reason", ["x"]),
    ("spec.lifecycleHooks", "x"),
    ("spec.lifecycleHooks", {"preDrain": [7]}),
    ("spec.lifecycleHooks", {"preDrain": [{"owner": "o"}]}),
    ("spec.holderIdentity", {}),
    ("spec.leaseDurationSeconds", "600"),
    ("spec.leaseTransitions", "1"),
    ("status", "x"),
    ("status.conditions", {}),
    ("status.conditions", ["x"]),
    ("status.conditions", [{"type": []}]),
    ("status.capacity", {"pods": 110}),
    ("status.allocatable", []),
    ("status.configVersion", "x"),
]


async def no_check(*_: str) -> None: ...


async def round_of_a_drain(client: KubeClient) -> None:
    await DrainRounds(client, "n", Clock(), DrainPolicy(local_data=False)).round(no_check)


STATE: Final = NodeState("nodeagent", "update", draining=True, progress=UpdateProgress(Phase.DRAINING, "", "c"))
READERS: Final[Readers] = {
    "a round of a drain": round_of_a_drain,
    "uncordon": lambda client: KubeNode(client, "n", Clock(), check_lease=no_check).uncordon("op"),
    "a request to the controller": lambda client: ControllerDrain(client, "n", check_lease=no_check).request(),
    "gates": lambda client: KubeGates(client, "n", controls_node=False).read(),
    "hooks": lambda client: KubeGates(client, "n", controls_node=False).hold_machine(),
    "lease": lambda client: KubeLease(client, HOST, Memory(), Clock()).acquire("nodeagent", "op", "why"),
    "readiness": lambda client: KubeReadiness(client, "n", Clock()).unready("2026-01-01T00:00:00Z", {"pods": "9"}),
    "conditions": lambda client: ControlledNodeConditions(client, "n", Clock()).publish(STATE),
    "events": lambda client: NodeEvents(client, "n").write(NodeEvent("A", "B", "c"), 1.0),
}


async def test_an_object_of_the_api_is_read(tmp_path: Path) -> None:
    faults = {
        name for name, reason in (await read_all(tmp_path, WHOLE, READERS)).items() if reason == "KubeServerFault"
    }
    assert not faults


@pytest.mark.finding(
    "attack: answers of an API server", "An object of another form is a fault of the server for every reader."
)
@pytest.mark.parametrize(("path", "value"), ODD)
async def test_an_odd_object_is_a_fault_of_the_server(tmp_path: Path, path: str, value: Any) -> None:
    reasons = await read_all(tmp_path, odd(path, value), READERS)
    assert "KubeServerFault" in reasons.values()


# --- a drain waits for an odd answer as for an outage


class Once(Api):
    """The first answers of the list and of the evictions are ``odd``; afterwards the pods go when they are evicted."""

    def __init__(self, odd_list: Any = None, odd_eviction: Answer | None = None) -> None:
        super().__init__([pod("a")])
        self.odd_list = odd_list
        self.odd_eviction = odd_eviction

    def __call__(self, request: Request) -> Answer:
        if request.target.startswith("/api/v1/pods") and self.odd_list is not None:
            listed, self.odd_list = self.odd_list, None
            return Answer(body={"items": [listed], "metadata": {}})
        if request.target.endswith("/eviction"):
            if self.odd_eviction is not None:
                refused, self.odd_eviction = self.odd_eviction, None
                return refused
            self.pods = []
        return super().__call__(request)


GATEWAY: Final = {"message": "API rate limit exceeded", "details": "retry in 5 s"}


@pytest.mark.finding(
    "attack: answers of an API server", "A drain waits for an odd answer as for an outage, and goes on afterwards."
)
@pytest.mark.parametrize(
    "api",
    [
        Once(odd_list={"metadata": {"namespace": "d", "uid": "x"}, "spec": {}}),
        Once(odd_list="pod"),
        Once(odd_eviction=Answer(429, GATEWAY)),
        Once(odd_eviction=Answer(429, "<html>slow down</html>")),
        Once(odd_eviction=Answer(429, {"message": {"text": "slow down"}})),
        Once(odd_eviction=Answer(500, {"message": ["x"], "details": {"causes": [{"reason": ["x"]}]}})),
        Once(odd_eviction=Answer(403, {"message": "no", "details": {"causes": "x"}})),
        Once(odd_eviction=Answer(200, "[]")),
    ],
)
async def test_a_drain_goes_on_after_an_odd_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Once) -> None:
    for name in ("POLL", "SETTLE"):
        monkeypatch.setattr(kube_drain, name, 0.01)
    monkeypatch.setattr(kube_drain, "pause_after", lambda *_: 0.01)
    async with serving(None) as server:
        server.answer = api
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(tmp_path)), Clock(), timeout=10.0) as client:
            await KubeNode(client, "n", Clock(), check_lease=no_check).drain("op", 30.0)
    assert api.odd_list is None
    assert api.odd_eviction is None


async def test_the_message_of_a_gateway_is_shown(tmp_path: Path) -> None:
    seen: list[Any] = []
    api = Once(odd_eviction=Answer(503, {**GATEWAY, "message": "maintenance of the gateway"}))
    async with serving(None) as server:
        server.answer = api
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(tmp_path)), Clock(), timeout=10.0) as client:
            work = DrainRounds(client, "n", Clock(), DrainPolicy())
            await work.round(no_check)
            seen = [each.why for each in work.remaining]
    assert seen == ["the API server could not evict it: maintenance of the gateway"]
