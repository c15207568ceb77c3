# SPDX-License-Identifier: Apache-2.0
"""Conditions of a Node beside those of its kubelet."""

from __future__ import annotations

from typing import Any

from integration.cluster.cluster import Cluster
from integration.cluster.other_holders import client_of
from nodeagent.features.cluster.decide.conditions import NodeState
from nodeagent.features.cluster.decide.drain import PodWait, Remaining
from nodeagent.features.cluster.node import NodeConditions
from nodeagent.host.clock import SystemClock

READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}


def there(cluster: Cluster, node: str) -> dict[str, Any]:
    status = cluster.admin.get(f"/api/v1/nodes/{node}")["status"]
    return {entry["type"]: entry for entry in status.get("conditions", ())}


async def test_they_come_and_go_and_the_kubelet_keeps_its_own(cluster: Cluster, node: str) -> None:
    cluster.admin.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [READY]}})
    async with client_of(cluster) as client:
        conditions = NodeConditions(client, node, SystemClock())
        await conditions.publish(NodeState())
        assert there(cluster, node).keys() == {"Ready"}
        left = [Remaining("shop", "web-0", PodWait.BUDGET, "web")]
        draining = NodeState("jane", "new disks", maintenance=True, draining=True, remaining=left)
        await conditions.publish(draining)
        now = there(cluster, node)
        assert now["Ready"]["reason"] == "KubeletReady"
        assert now["MaintenanceInProgress"]["message"] == "jane: new disks"
        assert "shop/web-0: a disruption budget: web" in now["DrainInProgress"]["message"]
        asked = client.requests
        await conditions.publish(draining)
        assert client.requests == asked
        await NodeConditions(client, node, SystemClock()).publish(draining)
        assert client.requests == asked + 1, "another process reads, and writes nothing"
        await conditions.publish(NodeState())
        assert {kind: entry["status"] for kind, entry in there(cluster, node).items()} == {
            "Ready": "True",
            "MaintenanceInProgress": "False",
            "DrainInProgress": "False",
        }
