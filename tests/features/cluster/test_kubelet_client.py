# SPDX-License-Identifier: Apache-2.0
"""Evictions with the credentials of the kubelet, where the host has them."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from nodeagent.errors import Terminal
from nodeagent.features.cluster import drain
from nodeagent.features.cluster.decide.drain import BY_AGENT, DrainPolicy, PodWait
from nodeagent.features.cluster.drain import DrainRounds, KubeNode
from nodeagent.features.cluster.kubelet_client import kubelet_client
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from tests.features.cluster.test_drain import Api, pod
from tests.kube.server import Answer, Request, serving
from tests.kube.test_client import Clock, kubeconfig

CONFIGURATION = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


async def no_check(_: str = "") -> None: ...


def credentials(directory: Path, port: int, token: str) -> Path:
    """A kubeconfig as a kubelet has it, with a ``kind``."""
    directory.mkdir(exist_ok=True)
    path = kubeconfig(directory, f"http://127.0.0.1:{port}", token=token)
    path.write_text(json.dumps({"kind": "Config", **json.loads(path.read_text())}))
    return path


async def path_used(chosen: str, directory: Path, places: tuple[str, ...]) -> str | None:
    client = await kubelet_client(chosen, Clock(), private=str(directory), places=places)
    return client._access.kubeconfig if client is not None else None


async def test_the_first_kubeconfig_is_used_and_no_configuration(tmp_path: Path) -> None:
    """OpenShift has the configuration of the kubelet where kubeadm has its kubeconfig."""
    first, second = tmp_path / "first", tmp_path / "second"
    places = str(first), str(second)
    assert await path_used("", tmp_path, places) is None
    second.write_text(CONFIGURATION)
    assert await path_used("", tmp_path, places) is None
    second.write_text("kind: Config\nusers: []\n")
    assert await path_used("", tmp_path, places) == str(second)
    first.write_text("kind: Config\n")
    assert await path_used("", tmp_path, places) == str(first)
    assert await path_used("/chosen", tmp_path, places) == "/chosen"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"kind: [", b"[1]", b"", b"a" * 2_000_000])
async def test_an_odd_file_is_no_kubeconfig(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd").write_bytes(content)
    os.mkfifo(tmp_path / "pipe")
    places = tuple(str(tmp_path / name) for name in ("odd", "pipe", ""))
    assert await asyncio.wait_for(path_used("", tmp_path, places), 10) is None


@pytest.mark.finding(
    "cluster: rights of an agent", "An agent evicts with the credentials of its kubelet, if it has them."
)
@pytest.mark.parametrize("has_kubelet", [True, False])
async def test_evictions_only_have_the_credentials_of_the_kubelet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_kubelet: bool
) -> None:
    monkeypatch.setattr(drain, "POLL", 0.1)
    monkeypatch.setattr(drain, "SETTLE", 0.1)
    requests: list[Request] = []

    class Evicting(Api):
        def __call__(self, request: Request) -> Answer:
            requests.append(request)
            if request.target.endswith("/eviction"):
                self.pods.clear()
            return super().__call__(request)

    async with serving(None) as server:
        server.answer = Evicting([pod("p")])
        own = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", token="own")
        theirs = credentials(tmp_path / "kubelet", server.port, "kubelet")
        places = (str(theirs),) if has_kubelet else ()
        made: list[KubeClient | None] = []

        async def evictor() -> KubeClient | None:
            made.append(await kubelet_client("", Clock(), private=str(tmp_path), places=places))
            return made[-1]

        async with KubeClient(ClusterAccess(str(own), private=str(tmp_path)), Clock()) as client:
            node = KubeNode(client, "n", Clock(), check_lease=no_check, evictor=evictor)
            await node.drain("op", 60.0)
    assert len(made) == 1
    assert made[0] is None or made[0]._connected is None, "its connection ends with the drain"

    def user_of(request: Request) -> str:
        headers = {name.lower(): value for name, value in request.headers.items()}
        return headers["authorization"].removeprefix("Bearer ")

    evictions = [request for request in requests if request.target.endswith("/eviction")]
    assert {user_of(request) for request in evictions} == {"kubelet" if has_kubelet else "own"}
    assert {user_of(request) for request in requests if request not in evictions} == {"own"}
    # Without the label no policy compares it with other pods.
    assert [BY_AGENT in request.body["metadata"].get("labels", {}) for request in evictions] == [not has_kubelet]


async def test_files_that_the_kubelet_replaces_do_not_end_a_drain(tmp_path: Path) -> None:
    async with serving(None) as server:
        api = server.answer = Api([pod("p")])
        own = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", token="own")
        private = str(tmp_path)
        missing = ClusterAccess(str(tmp_path / "missing"), private=private)
        async with (
            KubeClient(ClusterAccess(str(own), private=private), Clock()) as client,
            KubeClient(missing, Clock()) as kubelet,
        ):
            work = DrainRounds(client, "n", Clock(), DrainPolicy(), kubelet)
            assert not await work.round(no_check)
            (left,) = work.remaining
            assert left.cause is PodWait.OTHER
            assert "missing" in left.words
        # The agent's own are a fault of the agent.
        async with KubeClient(missing, Clock()) as broken:
            work = DrainRounds(broken, "n", Clock(), DrainPolicy())
            with pytest.raises(Terminal, match="missing"):
                await work.round(no_check)
    assert api.evicted == []


def test_the_label_is_that_of_the_policy() -> None:
    manifest = Path(__file__).parents[3] / "packaging" / "kubernetes" / "evictions.yaml"
    text: Any = manifest.read_text()
    assert f'"{BY_AGENT}" in object.metadata.labels' in text
    assert f"{{key: {BY_AGENT}, operator: Exists}}" in text
