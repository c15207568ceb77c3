# SPDX-License-Identifier: Apache-2.0
"""A drain in a namespace with 30,000 pods, by the credentials of a kubelet, and an eviction there by an admin."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.other_holders import client_at
from integration.cluster.programs import Binaries
from integration.cluster.test_fleet_status_cost import processor_time
from integration.cluster.test_restarted import install_rights
from integration.cluster.test_rights import by_kubelet, evict, evictions_in_force, yes
from nodeagent.features.cluster.decide.drain import DrainPolicy
from nodeagent.features.cluster.drain import DrainRounds
from nodeagent.host.clock import SystemClock

PODS: Final = 30_000
# Those on the node that is drained.
OWN: Final = 3
SPACE: Final = "many"
PATH: Final = f"/api/v1/namespaces/{SPACE}/pods"
TOGETHER: Final = 4
ATTEMPTS: Final = 10
# Seconds of the API server's processor for an eviction, with the lists around it; 15 or more with all pods compared.
CHEAP: Final = 5.0

pytestmark = pytest.mark.long


def pod(number: int) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    container = {
        "name": "web",
        "image": "registry/web",
        "env": [{"name": f"V{each}", "value": "x"} for each in range(9)],
    }
    return {
        "metadata": {"name": f"p{number}", "labels": {"app": "web"}, "ownerReferences": [owner]},
        "spec": {"nodeName": "drained" if number < OWN else f"w{number % 500}", "containers": [container]},
    }


def fill(cluster: Cluster, numbers: range) -> None:
    """Create pods over one connection."""
    connection = http.client.HTTPSConnection("127.0.0.1", cluster.port, context=cluster.admin.context, timeout=60)
    answer = b""
    for number in numbers:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        for attempt in range(ATTEMPTS):
            connection.request("POST", PATH, json.dumps(pod(number)), headers)
            response = connection.getresponse()
            answer = response.read()
            # A busy etcd does not answer in time, and may have the pod.
            if response.status in (201, 409):
                break
            time.sleep(attempt)
        else:
            pytest.fail(answer.decode())
    connection.close()


@pytest.fixture
def full(binaries: Binaries, tmp_path: Path) -> Iterator[Cluster]:
    """A control plane of its own: other tests list pods as well. It has the optional policy for evictions, too."""
    made = Cluster(binaries, tmp_path)
    try:
        made.start()
        made.admin.create("/api/v1/namespaces", {"metadata": {"name": SPACE}})
        for name in ("drained", "other"):
            made.node(name)
        install_rights(made)
        asyncio.run(evictions_in_force(made, SPACE, "other"))
        with ThreadPoolExecutor(TOGETHER) as threads:
            list(threads.map(lambda first: fill(made, range(first, PODS, TOGETHER)), range(TOGETHER)))
        yield made
    finally:
        made.close()


def going(cluster: Cluster) -> list[Any]:
    """Return the pods of the node of which the eviction was accepted."""
    found = cluster.admin.get(PATH, fieldSelector="spec.nodeName=drained")["items"]
    return [each for each in found if each["metadata"].get("deletionTimestamp")]


@pytest.mark.timeout(3600)
@pytest.mark.finding("cluster: namespaces of many pods", "A namespace with 30,000 pods does not stop an eviction.")
async def test_a_drain_beside_30000_pods(full: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    before, began = processor_time(full.apiserver.pid), time.monotonic()
    kubeconfig = full.kubeconfig("nodeagent:drained", ["nodeagent"])
    async with client_at(full, kubeconfig, timeout=10.0) as client, by_kubelet(full, "drained") as kubelet:
        work = DrainRounds(client, "drained", SystemClock(), DrainPolicy(), kubelet)
        async with asyncio.timeout(120):
            while not await work.round(yes) and len(going(full)) < OWN:
                await asyncio.sleep(1.0)
    took, spent = time.monotonic() - began, processor_time(full.apiserver.pid) - before
    figures = {"test": "eviction", "pods": PODS, "evictions": OWN, "seconds": round(took, 1)}
    with capsys.disabled():
        print(json.dumps({**figures, "apiserver seconds": round(spent, 1)}))
    assert spent < OWN * CHEAP
    # As kubectl drain has it, without the label of an agent.
    name, before = f"p{OWN}", processor_time(full.apiserver.pid)
    about = full.admin.get(f"{PATH}/{name}")
    full.admin.create(f"{PATH}/{name}/eviction", evict(about, by_agent=False))
    assert processor_time(full.apiserver.pid) - before < CHEAP
