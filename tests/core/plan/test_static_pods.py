# SPDX-License-Identifier: Apache-2.0
"""Static pods in a plan: the directory, the differences of two manifests, duplicates and owners."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.core.plan.static_pods import (
    MISSING,
    data_directory,
    differences,
    directory_problems,
    is_etcd,
    manifests,
    owner_of,
)
from nodeagent.core.validate.static_pod import StaticPod, load


def pod(name: str = "etcd", namespace: str = "kube-system", **container: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "containers": [{"name": name, "image": "i", "command": ["etcd", "--name=a"], **container}],
            "volumes": [{"name": "data", "hostPath": {"path": "/var/lib/etcd"}}],
        },
    }


def read(document: dict[str, Any]) -> StaticPod:
    found = load(yaml.safe_dump(document).encode())
    assert found is not None
    return found


def keys_of(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [key for key, _, _ in differences(read(old), read(new))]


def of(files: dict[str, bytes]) -> MachineConfig:
    return MachineConfig("c", files={path: FileEntry(path, content) for path, content in files.items()})


def test_every_visible_file_is_a_manifest_whatever_its_suffix() -> None:
    names = ("etcd.yaml", "etcd.yaml.bak", "README", ".hidden", "sub/deeper.yaml")
    found = manifests(of({f"/m/{name}": b"" for name in names}), "/m")
    assert sorted(found) == ["/m/README", "/m/etcd.yaml", "/m/etcd.yaml.bak"]


def test_a_backup_beside_the_manifest_is_refused() -> None:
    text = yaml.safe_dump(pod()).encode()
    files = {"/m/etcd.yaml": text, "/m/etcd.yaml.bak": text, "/m/other.yaml": yaml.safe_dump(pod("other")).encode()}
    (found,) = directory_problems(files, ["/m/etcd.yaml.bak"])
    assert found.path == "/m/etcd.yaml.bak"
    assert "/m/etcd.yaml," in found.message
    assert [problem.path for problem in directory_problems(files, ["/m/etcd.yaml"])] == ["/m/etcd.yaml"]
    assert not list(directory_problems(files, ["/m/other.yaml"]))


def test_a_file_that_is_no_pod_is_no_duplicate() -> None:
    text = yaml.safe_dump(pod()).encode()
    assert not list(directory_problems({"/m/a": text, "/m/b": b"notes"}, ["/m/a", "/m/b"]))


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({}, []),
        ({"image": "j"}, ["spec.containers[etcd].image"]),
        ({"command": ["etcd", "--name=b"]}, ["spec.containers[etcd].command"]),
        ({"env": [{"name": "A", "value": "secret"}]}, ["spec.containers[etcd].env[A]"]),
        ({"volumeMounts": [{"name": "data", "mountPath": "/d"}]}, ["spec.containers[etcd].volumeMounts"]),
        ({"tty": True, "stdin": False}, ["spec.containers[etcd].stdin", "spec.containers[etcd].tty"]),
    ],
)
def test_differences(change: dict[str, Any], keys: list[str]) -> None:
    assert keys_of(pod(), pod(**change)) == keys


def test_differences_of_lists() -> None:
    old, new = pod(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]), pod()
    new["spec"]["containers"][0]["env"] = [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]
    new["spec"]["volumes"] = []
    new["metadata"]["labels"] = {"revision": "2"}
    assert keys_of(old, new) == [
        "metadata.labels",
        "spec.containers[etcd].env[A]",
        "spec.containers[etcd].env[B].value",
        "spec.containers[etcd].env[C]",
        "spec.volumes[data]",
    ]


def test_the_order_of_containers_is_a_difference() -> None:
    old, new = pod(), pod()
    more = {"name": "more", "image": "i"}
    old["spec"]["containers"].append(more)
    new["spec"]["containers"].insert(0, more)
    assert keys_of(old, new) == ["spec.containers"]


def test_true_is_not_one() -> None:
    assert keys_of(pod(tty=True), pod(tty=1)) == ["spec.containers[etcd].tty"]


@pytest.mark.parametrize(
    ("document", "etcd"),
    [
        (pod(), True),
        (pod("store", command=["/usr/local/bin/etcd"]), True),
        (pod("store", command=["sh", "-c", "etcd"]), False),
        (pod("kube-apiserver", command=["kube-apiserver", "--etcd-servers=x"]), False),
    ],
)
def test_etcd_by_what_it_runs(document: dict[str, Any], etcd: bool) -> None:
    assert is_etcd(read(document)) is etcd


def test_owner() -> None:
    assert owner_of(read(pod())) == ""
    openshift = pod(namespace="openshift-etcd")
    assert owner_of(read(openshift)) == ""
    openshift["metadata"]["labels"] = {"revision": "7"}
    assert "revision" in owner_of(read(openshift))
    mounted = pod()
    mounted["spec"]["volumes"][0]["hostPath"]["path"] = "/etc/kubernetes/static-pod-resources/etcd-pod-7"
    assert "static-pod-resources" in owner_of(read(mounted))


def test_values_of_differences() -> None:
    assert differences(read(pod()), read(pod(image="j", tty=True))) == (
        ("spec.containers[etcd].image", "i", "j"),
        ("spec.containers[etcd].tty", MISSING, True),
    )


@pytest.mark.parametrize(
    ("container", "directory"),
    [
        ({}, ""),
        ({"command": ["etcd", "--data-dir=/data"]}, "/data"),
        ({"command": ["etcd", "--data-dir", "/var/lib/etcd/one"]}, "/srv/etcd/one"),
        ({"command": ["etcd"], "args": ["-data-dir=/var/lib/etcd"]}, "/srv/etcd"),
        ({"command": ["sh", "-c", "exec etcd --name=a --data-dir=/var/lib/etcd/"]}, "/srv/etcd"),
        ({"command": ["etcd"], "env": [{"name": "ETCD_DATA_DIR", "value": "/var/lib/etcd"}]}, "/srv/etcd"),
        ({"command": ["etcd", "--data-dir=/var/lib/etcd2"]}, "/var/lib/etcd2"),
    ],
)
def test_data_directory(container: dict[str, Any], directory: str) -> None:
    document = pod(volumeMounts=[{"name": "data", "mountPath": "/var/lib/etcd"}], **container)
    document["spec"]["volumes"][0]["hostPath"]["path"] = "/srv/etcd"
    assert data_directory(read(document)) == directory


def test_two_members_with_the_same_data_are_refused() -> None:
    args = ["--data-dir=/var/lib/etcd"]
    pods = {
        f"/m/{name}.yaml": yaml.safe_dump(
            pod(name) | {"spec": {"containers": [{"name": "etcd", "image": "e:1", "args": args}]}}
        ).encode()
        for name in ("one", "two")
    }
    (found,) = directory_problems(pods, ["/m/two.yaml"])
    assert "of /m/one.yaml, /var/lib/etcd" in found.message
