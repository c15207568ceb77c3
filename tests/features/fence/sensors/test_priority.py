# SPDX-License-Identifier: Apache-2.0
"""Which processes of etcd get the real-time class of I/O."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nodeagent.features.fence.sensors.sensors import find_etcd
from tests.host.etcd.test_detect import process


@pytest.mark.finding(
    "fence: who gets the real-time class",
    "Only the member gets the real-time class of I/O, not any process of its name.",
)
async def test_only_processes_of_the_system_get_priority(tmp_path: Path) -> None:
    for number, uid in ((70, 0), (71, 110), (72, 1000), (73, 61190), (74, 65534), (75, 100_000)):
        process(tmp_path, number, "etcd", uid=uid)
    victim = await find_etcd(root=tmp_path)
    assert victim is not None
    assert await asyncio.to_thread(victim.pids) == [70, 71, 73]
