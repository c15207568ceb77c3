# SPDX-License-Identifier: Apache-2.0
"""What `nodeagent fleet status` costs an API server with 5,000 Nodes, and that it sees the signs of others there."""

from __future__ import annotations

import http.client
import json
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from integration.cluster.cluster import ADMINS, Cluster
from integration.cluster.programs import Binaries
from nodeagent.cli.main import main

NODES: Final = 5000
# Nodes with a sign, by number.
TAINTED: Final = 3001
CORDONED: Final = 4002
LIMIT: Final = 1.0  # seconds of the processor
TOGETHER: Final = 3
MCO: Final = "machineconfiguration.openshift.io/"
WAITS: Final = "SlotHeld: 50 of 50 slots (disrupt) of pool worker are held"

pytestmark = pytest.mark.long


def node(number: int) -> dict[str, Any]:
    """A Node of 12 kB, of which most are the names of images."""
    digests = random.Random(number)
    images = [{"names": [f"registry/app{each}@sha256:{digests.getrandbits(256):064x}"] * 2} for each in range(50)]
    notes = {"currentConfig": "a", "desiredConfig": "b", "state": "Working", "reason": WAITS}
    spec: dict[str, Any] = {"podCIDR": "10.0.0.0/24"}
    if number == TAINTED:
        spec["taints"] = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
    if number == CORDONED:
        spec["unschedulable"] = True
    return {
        "metadata": {
            "name": f"w{number:04}",
            "labels": {"node-role.kubernetes.io/worker": ""},
            "annotations": {MCO + key: value for key, value in notes.items()},
        },
        "spec": spec,
        "status": {"images": images},
    }


def fill(cluster: Cluster, numbers: range) -> None:
    """Create Nodes over one connection."""
    connection = http.client.HTTPSConnection("127.0.0.1", cluster.port, context=cluster.admin.context, timeout=60)
    for number in numbers:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        connection.request("POST", "/api/v1/nodes", json.dumps(node(number)), headers)
        response = connection.getresponse()
        response.read()
        assert response.status == 201
    connection.close()


@pytest.fixture
def large(binaries: Binaries, tmp_path: Path) -> Iterator[Cluster]:
    """A control plane of its own: other tests list Nodes as well."""
    made = Cluster(binaries, tmp_path)
    try:
        made.start()
        with ThreadPoolExecutor(TOGETHER) as threads:
            list(threads.map(lambda first: fill(made, range(first, NODES, TOGETHER)), range(TOGETHER)))
        yield made
    finally:
        made.close()


def processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.finding(
    "cluster: length of the fleet status", "Of a large fleet only the metadata are read, and each sign of others."
)
def test_of_5000_nodes(large: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fleet", "status", "--kubeconfig", str(large.kubeconfig("admin", [ADMINS]))]
    figures: dict[str, list[float]] = {"usual": [], "all": []}
    for name, words in (("usual", []), ("usual", []), ("usual", []), ("all", ["--all"])):
        before = processor_time(large.apiserver.pid)
        assert main([*arguments, *words]) == 4
        figures[name].append(round(processor_time(large.apiserver.pid) - before, 2))
        printed = capsys.readouterr().out
        if name == "usual":
            assert len(printed.splitlines()) < 50
            for number, reason in ((TAINTED, "NodeLeaving"), (CORDONED, "Cordoned")):
                (line,) = [line for line in printed.splitlines() if f"w{number}" in line]
                assert reason in line
    with capsys.disabled():
        print(json.dumps({"test": "fleet status", "nodes": NODES, "apiserver seconds": figures}))
    # It has work of its own as well, after so many writes.
    assert min(figures["usual"]) <= LIMIT
