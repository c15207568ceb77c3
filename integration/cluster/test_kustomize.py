# SPDX-License-Identifier: Apache-2.0
"""`kubectl apply -k packaging/kubernetes`, with kubectl's own library, and an overlay as the docs describe it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from integration.cluster import programs
from integration.cluster.cluster import Cluster
from integration.cluster.test_rights import MANIFESTS as BASE
from integration.cluster.test_rights import path_of
from integration.hosts import process
from integration.hosts.container.conftest import required

FOLDER: Final = BASE.parent
KINDS_OF_OTHERS: Final = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}


@pytest.fixture(scope="module")
def kustomize() -> Path:
    return required(lambda: programs.find_peer("kustomize"), "there is no kustomize here")


def built(kustomize: Path, folder: Path) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = [
        *yaml.safe_load_all(process.run([str(kustomize), str(folder)], timeout=60).stdout)
    ]
    return documents


def named(documents: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    found = {(d["kind"], d["metadata"].get("namespace", ""), d["metadata"]["name"]): d for d in documents}
    assert len(found) == len(documents)
    return found


def in_files(*names: str) -> list[dict[str, Any]]:
    return [document for name in names for document in yaml.safe_load_all((FOLDER / name).read_text())]


def in_one_line(value: Any) -> Any:
    """kustomize breaks the lines of long expressions at other places."""
    match value:
        case dict():
            return {key: in_one_line(each) for key, each in value.items()}
        case list():
            return [in_one_line(each) for each in value]
        case str():
            return " ".join(value.split())
        case _:
            return value


def test_the_base_is_what_the_files_say(kustomize: Path) -> None:
    files = in_files("nodeagent.yaml", "bootstrap.yaml")
    assert in_one_line(named(built(kustomize, FOLDER))) == in_one_line(named(files))


def test_an_overlay_is_accepted_by_the_api_server(kustomize: Path, control_plane: Cluster, tmp_path: Path) -> None:
    """All files together, and the namespace of the leases that a cluster already has."""
    base = tmp_path / "nodeagent"
    base.mkdir()
    optional = ["evictions.yaml", "fleet-order.yaml", "fleet-viewer.yaml", "machineconfigs.yaml"]
    for file in FOLDER.glob("*.yaml"):
        (base if file.name not in optional else tmp_path).joinpath(file.name).write_bytes(file.read_bytes())
    delete = "$patch: delete\napiVersion: v1\nkind: Namespace\nmetadata: {name: medik8s-leases}\n"
    overlay = {"resources": ["nodeagent", *optional], "patches": [{"patch": delete}]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    documents = built(kustomize, tmp_path)
    assert ("Namespace", "", "medik8s-leases") not in named(documents)
    assert ("CustomResourceDefinition", "", "machineconfigs.nodeagent.org") in named(documents)
    for document in documents:
        path: str = KINDS_OF_OTHERS.get(document["kind"]) or path_of(document)
        found = control_plane.admin.find(f"{path}/{document['metadata']['name']}")
        if found is None and not missing_namespace(control_plane, document):
            # Strict: an unknown or repeated field is an error, as for kubectl.
            query = {"dryRun": "All", "fieldValidation": "Strict"}
            control_plane.admin.request("POST", path, document, query=query)


def missing_namespace(cluster: Cluster, document: dict[str, Any]) -> bool:
    """A dry run creates no namespace for the objects in it."""
    namespace = document["metadata"].get("namespace")
    return namespace is not None and cluster.admin.find(f"/api/v1/namespaces/{namespace}") is None


def test_every_file_is_in_the_base_or_optional() -> None:
    listed = set(yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"])
    optional = {"evictions.yaml", "fleet-order.yaml", "fleet-viewer.yaml", "machineconfigs.yaml", "kustomization.yaml"}
    assert listed | optional == {name for name in os.listdir(FOLDER) if name.endswith(".yaml")}  # noqa: PTH208
