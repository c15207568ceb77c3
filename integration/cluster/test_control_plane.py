# SPDX-License-Identifier: Apache-2.0
"""The control plane of the tests is the real thing: what the other tests rely on, seen once without nodeagent."""

from __future__ import annotations

import pytest

from integration.cluster.api import ApiError
from integration.cluster.cluster import LEASE_PATH, Cluster


def test_it_judges_as_a_real_one(cluster: Cluster, node: str) -> None:
    stranger = cluster.api("stranger")
    with pytest.raises(ApiError) as caught:
        stranger.get(f"/api/v1/nodes/{node}")
    assert caught.value.status == 403
    kubelet = cluster.api(f"system:node:{node}", ["system:nodes"])
    assert kubelet.get(f"/api/v1/nodes/{node}")["metadata"]["name"] == node
    with pytest.raises(ApiError, match="lease"):
        kubelet.create(LEASE_PATH, {"metadata": {"name": f"node-{node}"}})
