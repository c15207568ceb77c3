# SPDX-License-Identifier: Apache-2.0
"""Instances of static pods, by the directories of the kubelet."""

from __future__ import annotations

from pathlib import Path

from nodeagent.core.validate.static_pod import StaticPod
from nodeagent.host.static_pods.running import LOGS, PODS, Instance, instances

ONE, TWO, THREE = "1" * 32, "2" * 32, "3" * 32
API = "11111111-2222-3333-4444-555555555555"


def pod(name: str = "etcd", *containers: str) -> StaticPod:
    names = containers or ("etcd",)
    return StaticPod("kube-system", name, {"spec": {"containers": [{"name": each} for each in names]}})


def make(root: Path, uid: str, log: str = "", **containers: int) -> None:
    for container in containers or ["etcd"]:
        (root / PODS / uid / "containers" / container).mkdir(parents=True)
    for container, last in containers.items():
        directory = root / LOGS / f"{log}_{uid}" / container
        directory.mkdir(parents=True)
        for number in range(last + 1):
            (directory / f"{number}.log").touch()
        (directory / "0.log.20260101-000000.gz").touch()


def test_none(tmp_path: Path) -> None:
    assert instances(tmp_path, pod()) == []


def test_started_and_restarted(tmp_path: Path) -> None:
    make(tmp_path, ONE, "kube-system_etcd-node-1", etcd=0)
    make(tmp_path, TWO, "kube-system_etcd-node-1", etcd=2)
    make(tmp_path, THREE, "kube-system_etcd-node-1", etcd=-1)
    assert instances(tmp_path, pod()) == [Instance(ONE, True, 0), Instance(TWO, True, 2), Instance(THREE, False, 0)]


def test_every_container_has_to_start(tmp_path: Path) -> None:
    make(tmp_path, ONE, "kube-system_etcd-node-1", etcd=1)
    assert instances(tmp_path, pod("etcd", "etcd", "metrics")) == [Instance(ONE, False, 1)]


def test_others_are_not_counted(tmp_path: Path) -> None:
    make(tmp_path, API, "kube-system_etcd-node-1", etcd=0)
    make(tmp_path, ONE, "other_etcd-node-1", etcd=0)
    make(tmp_path, TWO, "kube-system_etcd-proxy-node-1", etcd=0)
    assert instances(tmp_path, pod(), ["etcd-proxy"]) == []
    assert [found.uid for found in instances(tmp_path, pod("etcd-proxy"), ["etcd"])] == [TWO]


def test_a_pod_that_ended_has_only_logs(tmp_path: Path) -> None:
    (tmp_path / LOGS / f"kube-system_etcd-node-1_{ONE}" / "etcd").mkdir(parents=True)
    assert instances(tmp_path, pod()) == []


def test_without_a_sandbox_the_containers_decide(tmp_path: Path) -> None:
    make(tmp_path, ONE)
    assert instances(tmp_path, pod()) == [Instance(ONE)]
    assert instances(tmp_path, pod("etcd", "etcd", "metrics")) == []
