# SPDX-License-Identifier: Apache-2.0
"""Reading the Node and the lease of its kubelet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import Refused
from nodeagent.features.cluster.node import KubeReadiness
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.reasons import Reason
from tests.kube.server import Answer, serving
from tests.kube.test_client import Clock, kubeconfig

META = {"name": "n", "uid": "u", "resourceVersion": "1"}
NODE = {"metadata": META, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
OLD = {"metadata": META, "spec": {"renewTime": "2025-12-31T08:00:00.000000Z"}}
# The clock of the tests stands at the first of January.
SINCE = "2025-12-31T09:00:00Z"


async def ask(directory: Path, node: Answer, lease: Answer, since: str) -> str:
    async with serving(None) as server:
        server.answer = lambda request: lease if "kube-node-lease" in request.target else node
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=10.0) as client:
            return await KubeReadiness(client, "n", Clock()).unready(since)


async def test_the_lease_of_the_kubelet_counts(tmp_path: Path) -> None:
    assert "not renewed" in await ask(tmp_path, Answer(body=NODE), Answer(body=OLD), SINCE)
    assert await ask(tmp_path, Answer(body=NODE), Answer(body=OLD), "") == ""


@pytest.mark.parametrize("status", [403, 404])
async def test_a_lease_that_cannot_be_read_does_not(tmp_path: Path, status: int) -> None:
    assert await ask(tmp_path, Answer(body=NODE), Answer(status, {"message": "no"}), SINCE) == ""


async def test_a_node_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    missing: dict[str, Any] = {"message": "not found"}
    with pytest.raises(Refused) as caught:
        await ask(tmp_path, Answer(404, missing), Answer(404, missing), SINCE)
    assert caught.value.reason == Reason.NODE_UNKNOWN
