# SPDX-License-Identifier: Apache-2.0
"""Which Nodes of a large cluster are read whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest

from nodeagent.features.slots import nodes as nodes_module
from nodeagent.features.slots.nodes import may_have_signs, read_nodes
from nodeagent.features.slots.objects import SLOTS, read_objects
from nodeagent.kube import client as client_module
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from tests.kube.server import Answer, Request, serving
from tests.kube.test_client import Clock, kubeconfig, thing

PART: Final = 10
SIGN: Final = [{"manager": "k", "fieldsV1": {"f:spec": {"f:taints": {}}}}]
PLAIN: Final = [{"manager": "k", "fieldsV1": {"f:metadata": {"f:labels": {}}, "f:spec": {"f:podCIDR": {}}}}]
CORDON: Final = [*PLAIN, {"manager": "x", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]


def node(number: int, managers: Any = PLAIN) -> dict[str, Any]:
    about = thing(f"n{number:03}")["metadata"]
    return {"metadata": {**about, "managedFields": managers}, "spec": {"taints": [{"key": "medik8s.io/drain"}]}}


@dataclass
class Nodes:
    """An API server with these Nodes, and those slots."""

    items: list[dict[str, Any]]
    slots: list[dict[str, Any]] = field(default_factory=list)
    # Whole Nodes that were sent, and those of which only the metadata were.
    sent: Counter[str] = field(default_factory=Counter)

    def __call__(self, request: Request) -> Answer:
        url = urlsplit(request.target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if url.path == SLOTS:
            return Answer(body={"items": self.slots, "metadata": {}})
        if url.path != "/api/v1/nodes":
            return Answer(404, {"message": "not found"})
        begin = int(query.get("continue", "0"))
        end = begin + int(query["limit"])
        found = self.items[begin:end]
        if name := query.get("fieldSelector", "").removeprefix("metadata.name="):
            found, end = [item for item in self.items if item["metadata"]["name"] == name], len(self.items)
        bare = "PartialObjectMetadataList" in request.headers["accept"]
        self.sent["metadata" if bare else "whole"] += len(found)
        shown = [{"metadata": item["metadata"]} for item in found] if bare else found
        return Answer(body={"items": shown, "metadata": {"continue": str(end) if end < len(self.items) else ""}})


async def read(directory: Path, api: Nodes, work: Any) -> Any:
    async with serving(None) as server:
        server.answer = api
        path = kubeconfig(directory, f"http://127.0.0.1:{server.port}", token="t")
        async with KubeClient(ClusterAccess(str(path), private=str(directory)), Clock(), timeout=10.0) as client:
            return await work(client)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "CHUNK", PART)
    monkeypatch.setattr(nodes_module, "CHUNK", PART)
    monkeypatch.setattr(nodes_module, "MOST", 5)


def whole(nodes: Any) -> list[str]:
    return [found["metadata"]["name"] for found in nodes if "spec" in found]


async def test_all_of_a_small_cluster_is_read(tmp_path: Path) -> None:
    api = Nodes([node(number) for number in range(PART)])
    nodes, bare = await read(tmp_path, api, read_nodes)
    assert (len(nodes), len(bare), api.sent) == (PART, 0, {"whole": PART, "metadata": PART})


@pytest.mark.finding(
    "cluster: length of the fleet status", "Of a large fleet only the metadata are read, and each sign of others."
)
async def test_nodes_with_signs_are_read_whole(tmp_path: Path) -> None:
    api = Nodes([node(number) for number in range(50)])
    for number, managers in ((20, SIGN), (31, CORDON), (49, None), (5, SIGN)):
        api.items[number] = node(number, managers)
    nodes, bare = await read(tmp_path, api, read_nodes)
    assert sorted(found["metadata"]["name"] for found in nodes) == [item["metadata"]["name"] for item in api.items]
    assert sorted(whole(nodes)) == ["n005", "n020", "n031", "n049"]
    assert (len(bare), api.sent) == (46, {"whole": 4, "metadata": 50})


async def test_with_many_signs_one_list_is_cheaper(tmp_path: Path) -> None:
    api = Nodes([node(number, SIGN) for number in range(50)])
    nodes, bare = await read(tmp_path, api, read_nodes)
    assert (len(whole(nodes)), len(bare)) == (50, 0)
    assert api.sent == {"whole": 50, "metadata": 50}


@pytest.mark.parametrize("everything", [False, True])
async def test_the_answer_names_what_was_not_read(tmp_path: Path, everything: bool) -> None:
    """Holders of slots are read whole: only their status shows whether they are well."""
    held = {**thing("slot-disrupt-p-0"), "spec": {"holderIdentity": "n042/u1"}}
    api = Nodes([node(number) for number in range(50)], [held])
    objects, unknown = await read(
        tmp_path, api, lambda client: read_objects(client, Clock(), namespace="l", whole=everything)
    )
    assert len(objects.nodes) == 50
    assert ("n042" in whole(objects.nodes), len(whole(objects.nodes))) == (True, 50 if everything else 1)
    assert unknown == ([] if everything else ["planned maintenances of 49 nodes (--all reads them)"])


@pytest.mark.parametrize(
    ("managers", "signs"),
    [
        (PLAIN, False),
        (SIGN, True),
        (CORDON, True),
        (None, True),
        ([], True),
        ([{}], False),
        ([{"fieldsV1": {}}], False),
    ],
)
def test_who_may_have_signs(managers: Any, signs: bool) -> None:
    assert may_have_signs({**thing("n")["metadata"], "managedFields": managers}) is signs
