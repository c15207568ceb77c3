# SPDX-License-Identifier: Apache-2.0
"""Whether the API server answers and allows the lease, against a server that answers as it has to, or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeagent.features.selfcheck.cli._survey import reach_api_server, reach_lease
from nodeagent.host.clock import SystemClock
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from tests.kube.server import Answer, Server, serving
from tests.kube.test_client import kubeconfig


def client(server: Server, directory: Path) -> KubeClient:
    path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
    return KubeClient(ClusterAccess(str(path), private=str(directory)), SystemClock(), timeout=10.0)


def review(allowed: Any) -> Answer:
    return Answer(201, {"status": {"allowed": allowed}})


@pytest.mark.parametrize(
    ("answer", "well"),
    [(Answer(body={"metadata": {"name": "n1", "uid": "u", "resourceVersion": "1"}}), True), (Answer(404), False)],
)
async def test_api_server(tmp_path: Path, answer: Answer, well: bool) -> None:
    async with serving(answer) as server, client(server, tmp_path) as kube:
        found = await reach_api_server(kube, "n1")
    assert (found.error == "") is well
    assert bool(found.remedy) is not well
    assert server.requests[0].target == "/api/v1/nodes/n1"


@pytest.mark.parametrize(
    ("answers", "well"),
    [
        ([review(True)], True),
        ([review(True), review(False)], False),
        ([Answer(201, {"status": "nonsense"})], False),
        ([Answer(403)], False),
    ],
)
async def test_lease(tmp_path: Path, answers: list[Answer], well: bool) -> None:
    async with serving(*answers) as server, client(server, tmp_path) as kube:
        found = await reach_lease(kube, "N1", "leases")
    assert (found.error == "") is well
    assert found.target == "lease leases/node-n1"
    # Only reviews are created: no lease is touched.
    assert {request.target for request in server.requests} == {"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}
