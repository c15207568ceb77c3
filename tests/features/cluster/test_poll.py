# SPDX-License-Identifier: Apache-2.0
"""A Node without a watch is polled: each state is followed once, through faults, and no faster than agreed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.coordination.annotations import ControllerRequest, read_request
from nodeagent.core.coordination.kube_objects import Node
from nodeagent.errors import AgentError
from nodeagent.features.cluster import handshake
from nodeagent.features.cluster.handshake import Handshake
from nodeagent.features.cluster.node_watch import NodeWatch, WatchEnd
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from tests.features.cluster.test_handshake import Memory
from tests.kube.server import Answer, serving
from tests.kube.test_client import Clock, kubeconfig

EVERY = 0.02

Poll = Callable[..., Awaitable[tuple[list[tuple[str, str]], list[str], int]]]


class NoWatch(NodeWatch):
    async def follow(self, *_: object) -> WatchEnd:
        return WatchEnd.POLL


def version(number: int, uid: str = "u") -> Answer:
    return Answer(body={"metadata": {"name": "n", "uid": uid, "resourceVersion": str(number)}})


@pytest.fixture
def poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Poll:
    """Follow ``count`` states; return their uids and versions, the reported faults, and the number of requests."""
    followed: list[tuple[str, str]] = []

    def read(node: Node) -> ControllerRequest:
        followed.append((node["metadata"]["uid"], node["metadata"]["resourceVersion"]))
        return read_request(node)

    async def poll(count: int, *answers: Answer) -> tuple[list[tuple[str, str]], list[str], int]:
        troubles: list[str] = []

        def trouble(fault: AgentError | None) -> None:
            troubles.append(fault.reason if fault else "")

        async with serving(*answers) as server:
            path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", token="t")
            async with KubeClient(ClusterAccess(str(path), private=str(tmp_path)), Clock(), timeout=10.0) as client:
                options: dict[str, Any] = {
                    "changed": lambda _: None,
                    "on_error": trouble,
                    "every": EVERY,
                    "watch": NoWatch(client, "n"),
                }
                running = asyncio.create_task(Handshake(client, "n", Memory(), **options).run())
                async with asyncio.timeout(20):
                    while len(followed) < count:
                        await asyncio.sleep(0.001)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            return followed, troubles, len(server.requests)

    monkeypatch.setattr(handshake, "read_request", read)
    monkeypatch.setattr(handshake, "READ_FIRST_PAUSE", EVERY)
    return poll


async def test_each_state_once(poll: Poll) -> None:
    gone = Answer(404, {"message": "not found"})
    answers = [version(1), version(1), version(2), gone, gone, version(2), version(2, "another")]
    followed, troubles, requests = await poll(4, *answers)
    assert followed == [("u", "1"), ("u", "2"), ("u", "2"), ("another", "2")]
    assert (troubles, requests) == ([], 7)


async def test_faults_are_reported_and_retried(poll: Poll) -> None:
    denied = Answer(403, {"message": "cannot get"})
    followed, troubles, _ = await poll(2, version(1), denied, denied, version(1), version(2))
    assert followed == [("u", "1"), ("u", "2")]
    assert troubles == ["KubeForbidden", ""]


async def test_after_an_outage_the_agents_spread_over_an_interval(poll: Poll, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lost the API server, and found it again, at one moment."""
    slept: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(handshake.asyncio, "sleep", noted)
    monkeypatch.setattr(handshake.random, "uniform", lambda low, high: low if (low, high) == (0.2, 1.2) else high)
    denied = Answer(403, {"message": "cannot get"})
    await poll(3, version(1), denied, version(2), version(3), version(4))
    pauses = [each for each in slept if each >= 0.2 * EVERY - 1e-9]
    assert pauses[2] == pytest.approx(0.2 * EVERY)
    assert all(each >= EVERY for each in (pauses[0], pauses[1], pauses[3]))


async def test_the_poll_interval_is_respected(poll: Poll) -> None:
    began = time.monotonic()
    _, _, requests = await poll(2, *[version(1)] * 20, version(2))
    assert time.monotonic() - began >= EVERY * (requests - 1)
