# SPDX-License-Identifier: Apache-2.0
"""What a user without some permissions, or in a cluster without pools, is shown of a rollout."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from nodeagent.features.slots.decide.rollout import ClusterObjects
from nodeagent.features.slots.objects import read_objects
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.kube.errors import Forbidden
from tests.kube.server import Answer, Request, serving
from tests.kube.test_client import Clock, kubeconfig, thing

LAYERED: Final = [
    {
        **thing("built"),
        "spec": {"machineConfigPool": {"name": "worker"}},
        "status": {"currentImagePullSpec": "quay.io/os@sha256:1"},
    },
    {**thing("new"), "spec": {"machineConfigPool": {"name": "infra"}}},
]
LISTS: Final[dict[str, list[dict[str, Any]]]] = {
    "nodes": [thing("n1")],
    "machineconfigpools": [thing("worker"), thing("infra")],
    "machineosconfigs": LAYERED,
    "leases": [{**thing("node-n1"), "spec": {}}, {**thing("a-leader"), "spec": {}}],
    "nodemaintenances": [{**thing("m"), "spec": {"nodeName": "n1"}}],
}


async def read(directory: Path, **answers: Answer) -> tuple[ClusterObjects, list[str], list[str]]:
    """Return the objects, the messages, and what was requested. By default each list of ``LISTS`` is the answer."""
    asked: list[str] = []

    def answer(request: Request) -> Answer:
        name = request.target.partition("?")[0].rpartition("/")[2]
        asked.append(name)
        return answers.get(name) or Answer(body={"items": LISTS[name], "metadata": {}})

    async with serving(None) as server:
        server.answer = answer
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=10.0) as client:
            objects, unknown = await read_objects(client, Clock(), namespace="l")
    return objects, list(unknown), asked


def forbidden(name: str) -> Answer:
    return Answer(403, {"reason": "Forbidden", "message": f"{name} is forbidden"})


def names(found: Any) -> list[str]:
    return [each["metadata"]["name"] for each in found]


async def test_all_that_there_is(tmp_path: Path) -> None:
    objects, unknown, _ = await read(tmp_path)
    assert unknown == []
    assert (names(objects.nodes), names(objects.pools)) == (["n1"], ["worker", "infra"])
    assert objects.images == {"worker": "quay.io/os@sha256:1", "infra": ""}
    assert list(objects.leases) == ["n1"], "other leases are not those of nodes"
    assert names(objects.maintenances) == ["m"]
    assert objects.now is not None


async def test_images_that_may_not_be_listed_are_not_known(tmp_path: Path) -> None:
    """Without them a node is not shown as behind the image of its pool."""
    objects, unknown, _ = await read(tmp_path, machineosconfigs=forbidden("machineosconfigs"))
    assert objects.images is None
    assert ["machineosconfigs is forbidden" in each for each in unknown] == [True]


async def test_flags_that_may_not_be_listed_are_named(tmp_path: Path) -> None:
    objects, unknown, _ = await read(
        tmp_path, leases=forbidden("leases"), nodemaintenances=forbidden("nodemaintenances")
    )
    assert (objects.leases, list(objects.maintenances)) == ({}, [])
    assert [name in each for name, each in zip(("leases", "leases", "nodemaintenances"), unknown, strict=True)] == [
        True
    ] * 3
    assert objects.images is not None


@pytest.mark.parametrize("name", ["nodes", "machineconfigpools"])
async def test_without_nodes_or_pools_there_is_no_answer(tmp_path: Path, name: str) -> None:
    with pytest.raises(Forbidden):
        await read(tmp_path, **{name: forbidden(name)})


async def test_a_cluster_without_pools(tmp_path: Path) -> None:
    missing = Answer(404, {"reason": "NotFound", "message": "the server could not find the requested resource"})
    objects, unknown, asked = await read(tmp_path, machineconfigpools=missing, nodemaintenances=missing)
    assert (list(objects.pools), list(objects.maintenances), objects.images, unknown) == ([], [], {}, [])
    assert "machineosconfigs" not in asked


async def test_a_server_that_hides_its_time(tmp_path: Path) -> None:
    hidden = {name: Answer(body={"items": each, "metadata": {}}, headers={"Date": ""}) for name, each in LISTS.items()}
    objects, _, _ = await read(tmp_path, **hidden)
    assert objects.now is None
