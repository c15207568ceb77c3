# SPDX-License-Identifier: Apache-2.0
"""The hook on the Machine of a node, against a server in this process: what a real one does not do on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from nodeagent.core.coordination.gates import HOOK
from nodeagent.errors import AgentError
from nodeagent.features.cluster.gates import KubeGates
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from tests.kube.server import Answer, Request, serving
from tests.kube.test_client import Clock, kubeconfig, thing

NODE: Final[dict[str, Any]] = {"metadata": {**thing("n")["metadata"], "annotations": {}}}
OF_MACHINE: Final[dict[str, Any]] = {
    "metadata": {**NODE["metadata"], "annotations": {"machine.openshift.io/machine": "ns/m"}}
}
MANAGED: Final[dict[str, Any]] = {"metadata": {**NODE["metadata"], "labels": {"bootc.dev/managed": ""}}}
ETCD: Final = {"name": "EtcdQuorumOperator", "owner": "clusteroperator/etcd"}

BOOTC_NODE: Final[dict[str, Any]] = {
    "metadata": {**NODE["metadata"], "annotations": {"bootc.dev/in-reboot-slot": ""}},
    "spec": {"desiredImage": "quay.io/example/os@sha256:1", "desiredImageState": "Staged"},
}


def machine(*hooks: Any, **meta: str) -> dict[str, Any]:
    about = {**thing("m")["metadata"], "namespace": "ns", **meta}
    return {"metadata": about, "spec": {"lifecycleHooks": {"preDrain": list(hooks)}}}


class Api:
    """A Node, its Machine, and the statuses with which patches of the Machine are answered, the last one without end.
    ``of_node`` are those of the Node."""

    def __init__(self, node: dict[str, Any], of_node: dict[str, Any] | None, *statuses: int) -> None:
        self.node = node
        self.machine = of_node
        self.statuses = list(statuses) or [200]
        self.patches: list[Any] = []
        self.of_node: list[int] = []
        self.marks: list[Any] = []

    def __call__(self, request: Request) -> Answer:
        if "/nodes/" in request.target:
            if request.method == "PATCH":
                assert request.body["metadata"]["resourceVersion"] == self.node["metadata"]["resourceVersion"]
                self.marks.append(request.body["metadata"]["annotations"])
                if (status := self.of_node.pop(0) if self.of_node else 200) != 200:
                    return Answer(status, {"message": "no"})
            return Answer(body=self.node)
        if self.machine is None:
            return Answer(404, {"message": "not found"})
        if request.method == "PATCH":
            self.patches.append(request.body["spec"]["lifecycleHooks"]["preDrain"])
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            return Answer(status, self.machine if status == 200 else {"message": "no"})
        return Answer(body=self.machine)


async def held(directory: Path, api: Api, *, free: bool = False) -> str:
    """Hold the Machine, or free it, and return the reason with which that failed, "" if it did not."""
    async with serving(None) as server:
        server.answer = api
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=10.0) as client:
            gates = KubeGates(client, "n", controls_node=False)
            try:
                await (gates.free_machine() if free else gates.hold_machine())
            except AgentError as error:
                return error.reason
    return ""


@pytest.mark.parametrize("free", [False, True], ids=["hold", "free"])
@pytest.mark.parametrize(
    ("node", "of_node"),
    [(NODE, machine()), (OF_MACHINE, None)],
    ids=["a node without a Machine", "a Machine that is gone"],
)
async def test_without_a_machine_nothing_is_written(tmp_path: Path, node: Any, of_node: Any, free: bool) -> None:
    api = Api(node, of_node)
    assert await held(tmp_path, api, free=free) == ""
    assert api.patches == []


async def test_the_hook_is_beside_those_of_others(tmp_path: Path) -> None:
    api = Api(OF_MACHINE, machine(ETCD))
    assert await held(tmp_path, api) == ""
    api.machine = machine(ETCD, HOOK)
    assert await held(tmp_path, api) == ""
    assert api.patches == [[ETCD, HOOK]], "one that is there is not written again"
    assert await held(tmp_path, api, free=True) == ""
    assert api.patches[1:] == [[ETCD]]


async def test_a_machine_that_is_deleted_is_not_held_but_freed(tmp_path: Path) -> None:
    gone = {"deletionTimestamp": "2026-11-21T09:00:00Z"}
    api = Api(OF_MACHINE, machine(**gone))
    assert await held(tmp_path, api) == "NodeLeaving"
    assert api.patches == []
    api.machine = machine(HOOK, **gone)
    assert await held(tmp_path, api, free=True) == ""
    assert api.patches == [[]]


@pytest.mark.parametrize(
    ("statuses", "reason", "patches"),
    [([409, 200], "", 2), ([409], "MachineContended", 3), ([404], "", 1)],
    ids=["changed once", "changed each time", "deleted in the meantime"],
)
async def test_a_machine_that_changes(tmp_path: Path, statuses: list[int], reason: str, patches: int) -> None:
    api = Api(OF_MACHINE, machine(), *statuses)
    assert await held(tmp_path, api) == reason
    assert len(api.patches) == patches


# --- autoscalers


SCALE_DOWN: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
MARKS: Final = {SCALE_DOWN: "true", "nodeagent.org/marked": SCALE_DOWN}


@pytest.mark.parametrize(
    ("statuses", "reason", "patches"),
    [([], "", 1), ([409], "", 2), ([409] * 3, "NodeContended", 3), ([403], "KubeForbidden", 1)],
    ids=["at once", "a kubelet wrote", "a kubelet writes each time", "without the right"],
)
async def test_the_node_is_marked_for_autoscalers(
    tmp_path: Path, statuses: list[int], reason: str, patches: int
) -> None:
    api = Api(NODE, None)
    api.of_node = statuses
    assert await held(tmp_path, api) == reason
    assert api.marks == [MARKS] * patches


async def test_the_marks_of_the_agent_are_taken_back(tmp_path: Path) -> None:
    api = Api({"metadata": {**NODE["metadata"], "annotations": MARKS}}, None)
    assert await held(tmp_path, api) == ""
    assert api.marks == [], "a repetition writes nothing"
    assert await held(tmp_path, api, free=True) == ""
    assert api.marks == [dict.fromkeys(MARKS)]


# --- bootc-operator


@pytest.mark.parametrize(
    ("node", "answer", "reason", "requests"),
    [
        (NODE, Answer(), "", 2),
        (MANAGED, Answer(404, {"message": "not found"}), "", 3),
        (MANAGED, Answer(body=BOOTC_NODE), "BootcOperator", 3),
        # Rights that an older manifest does not give.
        (MANAGED, Answer(403, {"message": "no"}), "KubeForbidden", 2),
    ],
    ids=["a node of its own", "before the object", "its turn", "without the right"],
)
async def test_an_update_by_bootc_operator(
    tmp_path: Path, node: Any, answer: Answer, reason: str, requests: int
) -> None:
    def respond(request: Request) -> Answer:
        if "/bootcnodes/" in request.target:
            return answer
        return Answer(body=node if "/nodes/" in request.target else {"items": [], "metadata": {}})

    async with serving(None) as server:
        server.answer = respond
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(tmp_path)), Clock(), timeout=10.0) as client:
            gates = KubeGates(client, "n", controls_node=False)
            if not reason:
                await gates.check()
            else:
                with pytest.raises(AgentError) as refused:
                    await gates.check()
                assert refused.value.reason == reason
        assert len(server.requests) == requests
