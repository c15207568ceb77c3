# SPDX-License-Identifier: Apache-2.0
"""Hosts in memory with the whole agent's side of a cluster take an update from a real API server, which counts."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from integration.cluster import programs
from integration.cluster.cluster import Cluster
from integration.cluster.sim_node import QUICK, SimNode
from nodeagent.update import wait
from tests.world.run import config

# Seconds, a seventh of those of the settings: an update of such a host takes as much less.
RETRY: Final = 2.0
LONGEST: Final = 8.0


def cpu(cluster: Cluster) -> dict[str, float]:
    """Seconds of processor time of the servers so far."""
    found = {}
    for name, server in (("apiserver", cluster.apiserver), ("etcd", cluster.etcd)):
        fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        found[name] = (int(fields[11]) + int(fields[12])) / 100
    return found


async def roll_out(cluster: Cluster, nodes: int, slots: int) -> dict[str, Any]:
    pool, chance = f"fleet-{nodes}", random.Random(1)
    names = [f"{pool}-{number}" for number in range(nodes)]
    for name in names:
        await asyncio.to_thread(cluster.node, name)
    limits = replace(QUICK, lease_retry=RETRY)
    members = [SimNode(cluster, name, pool=pool, slots=slots, limits=limits, user=pool) for name in names]
    before, began = cpu(cluster), time.monotonic()

    async def update(member: SimNode) -> None:
        member.want(config("one", {"/etc/app/x": "1"}))
        await asyncio.sleep(chance.uniform(0.0, RETRY))
        await member.settle()

    async with asyncio.TaskGroup() as group:
        for member in members:
            group.create_task(update(member))
    took, spent = time.monotonic() - began, {key: value - before[key] for key, value in cpu(cluster).items()}
    codes = Counter(e["responseStatus"]["code"] for e in cluster.audit() if e["user"]["username"] == pool)
    return {
        "nodes": nodes,
        "slots": slots,
        "seconds": round(took, 1),
        "updated": sum(member.outcomes() == ["done"] for member in members),
        "requests": codes.total(),
        "requests_per_node": round(codes.total() / nodes, 1),
        "conflicts": codes[409],
        "cpu_ms_per_request": {key: round(1000 * value / codes.total(), 2) for key, value in spent.items()},
    }


def measured(sizes: list[int]) -> list[dict[str, Any]]:
    """Raises ``Unavailable`` where no API server can be had."""
    wait.LONGEST_FOR_HOLDER = LONGEST  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(programs.find(), Path(directory))
        try:
            cluster.start()
            return [asyncio.run(roll_out(cluster, nodes, max(1, nodes // 10))) for nodes in sizes]
        finally:
            cluster.close()
