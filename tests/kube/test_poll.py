"""An object that is followed: each state once, through faults, and no faster than agreed."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

from nodeagent.errors import AgentError
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.kube.handshake import follow
from tests.kube.server import Answer, serving
from tests.kube.test_client import Clock, kubeconfig

EVERY = 0.02


def version(number: int, uid: str = "u") -> Answer:
    return Answer(body={"metadata": {"uid": uid, "resourceVersion": str(number)}})


async def collect(directory: Path, count: int, *answers: Answer) -> tuple[list[Any], list[AgentError | None], int]:
    """Return the first ``count`` states, the reported faults, and the number of requests."""
    troubles: list[AgentError | None] = []
    states: list[Any] = []
    async with serving(*answers) as server:
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=2.0) as client:
            following = follow(client, "/x", every=EVERY, first_pause=EVERY, on_error=troubles.append)
            async with asyncio.timeout(20), aclosing(following):
                async for found in following:
                    states.append(found and found["metadata"])
                    if len(states) == count:
                        break
        return states, troubles, len(server.requests)


async def test_each_state_once(tmp_path: Path) -> None:
    gone = Answer(404, {"message": "not found"})
    answers = [version(1), version(1), version(2), gone, gone, version(2), version(2, "another")]
    states, troubles, requests = await collect(tmp_path, 5, *answers)
    assert states == [
        {"uid": "u", "resourceVersion": "1"},
        {"uid": "u", "resourceVersion": "2"},
        None,
        {"uid": "u", "resourceVersion": "2"},
        {"uid": "another", "resourceVersion": "2"},
    ]
    assert (troubles, requests) == ([], 7)


async def test_an_object_that_never_existed_is_a_state(tmp_path: Path) -> None:
    states, _, _ = await collect(tmp_path, 1, Answer(404, {}))
    assert states == [None]


async def test_faults_are_reported_and_retried(tmp_path: Path) -> None:
    denied = Answer(403, {"message": "cannot get"})
    states, troubles, _ = await collect(tmp_path, 2, version(1), denied, denied, version(1), version(2))
    assert [state["resourceVersion"] for state in states] == ["1", "2"]
    assert [trouble and trouble.reason for trouble in troubles] == ["KubeForbidden", "KubeForbidden", None]


async def test_the_poll_interval_is_respected(tmp_path: Path) -> None:
    began = time.monotonic()
    _, _, requests = await collect(tmp_path, 2, *[version(1)] * 20, version(2))
    assert time.monotonic() - began >= EVERY * (requests - 1)
