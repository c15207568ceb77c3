# SPDX-License-Identifier: Apache-2.0
"""The MachineConfigNode, which the controller creates later than the agent first reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodeagent.features.cluster.decide.conditions import NodeState
from nodeagent.features.cluster.decide.machine_config_node import UpdateProgress
from nodeagent.features.cluster.node import ABSENT_FOR, LATER, SOON, ControlledNodeConditions
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.update.states import Phase
from tests.kube.server import Answer, Request, serving
from tests.kube.test_client import Clock, kubeconfig

META = {"name": "n", "uid": "u", "resourceVersion": "1"}
NO_KIND = Answer(404, "404 page not found")
NO_OBJECT = Answer(404, {"kind": "Status", "reason": "NotFound", "message": 'machineconfignodes "n" not found'})


@dataclass
class Api:
    node: Answer
    written: list[dict[str, Any]] = field(default_factory=list)
    reads: int = 0

    def __call__(self, request: Request) -> Answer:
        if "machineconfignodes" not in request.target:
            return Answer(body={"metadata": META})
        if request.method == "PATCH":
            self.written.append(request.body["status"])
        else:
            self.reads += 1
        return self.node


def state(phase: Phase) -> NodeState:
    current = "b" if phase is Phase.IDLE else ""
    return NodeState(progress=UpdateProgress(phase, current, "b"))


@pytest.mark.finding(
    "cluster: states that could not be written", "A MachineConfigNode that appears later gets the state of the update."
)
async def test_an_object_that_appears_later_is_written(tmp_path: Path) -> None:
    api = Api(NO_OBJECT)
    async with serving(None) as server:
        server.answer = api
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(tmp_path)), Clock(), timeout=10.0) as client:
            conditions = ControlledNodeConditions(client, "n", Clock())
            assert await conditions.publish(state(Phase.STAGING)) == SOON
            pauses = [await conditions.publish(state(Phase.IDLE)) for _ in range(8)]
            assert (pauses[0], pauses[-1]) == (SOON, LATER)
            assert pauses == sorted(pauses, key=lambda pause: pause or 0.0)
            assert api.written == []
            api.node = Answer(body={"metadata": META, "status": {}})
            assert await conditions.publish(state(Phase.IDLE)) is None
            assert await conditions.publish(state(Phase.IDLE)) is None
    (status,) = api.written
    assert {each["type"]: each["status"] for each in status["conditions"]}["Updated"] == "True"
    assert status["configVersion"] == {"desired": "b", "current": "b"}


async def test_a_cluster_without_the_kind_is_read_once_in_an_hour(tmp_path: Path) -> None:
    api, clock = Api(NO_KIND), Clock()
    async with serving(None) as server:
        server.answer = api
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(tmp_path)), clock, timeout=10.0) as client:
            conditions = ControlledNodeConditions(client, "n", clock)
            for phase in (Phase.STAGING, Phase.WRITING, Phase.IDLE):
                assert await conditions.publish(state(phase)) is None
            assert api.reads == 1
            clock.ahead = ABSENT_FOR + 1
            await conditions.publish(state(Phase.IDLE))
            assert api.reads == 2
