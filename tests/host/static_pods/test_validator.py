# SPDX-License-Identifier: Apache-2.0
"""The directory of manifests as it will be on this host."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.errors import Problem, Refused, Unreconcilable
from nodeagent.host.etcd.detect import manifest_directories
from nodeagent.host.etcd.proof import MemberProof
from nodeagent.host.static_pods.replacement import MEMBER
from nodeagent.host.static_pods.validator import StaticPodValidator
from nodeagent.host.view import host_directory
from nodeagent.reasons import Reason

DIRECTORY = "/etc/kubernetes/manifests"
PATH = f"{DIRECTORY}/etcd.yaml"


def pod(name: str = "etcd", image: str = "etcd:1", **spec: Any) -> bytes:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"containers": [{"name": name, "image": image}], **spec},
    }
    return yaml.safe_dump(document).encode()


def mounting(kind: str) -> bytes:
    return pod(volumes=[{"name": "pki", "hostPath": {"path": "/etc/pki/etcd", "type": kind}}])


def config(**files: bytes) -> MachineConfig:
    return of({f"{DIRECTORY}/{name.replace('_', '.')}": content for name, content in files.items()})


def of(files: dict[str, bytes]) -> MachineConfig:
    return MachineConfig("c", files={path: FileEntry(path, content) for path, content in files.items()})


@dataclass
class Etcd(MemberProof):
    cluster: str = ""

    async def identity(self) -> str:
        return ""

    async def cluster_version(self) -> str:
        return self.cluster

    async def trouble(self, expected: str = "") -> str:
        return expected

    async def snapshot(self) -> None:
        pass


@dataclass
class Notes:
    member: str = ""

    async def note(self, key: str) -> str:
        assert key == MEMBER
        return self.member

    async def keep_note(self, key: str, text: str) -> None:
        raise AssertionError


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    directory = tmp_path / DIRECTORY.lstrip("/")
    directory.mkdir(parents=True)
    return directory


async def problems(root: Path, old: MachineConfig, new: MachineConfig) -> list[Problem]:
    return list(await StaticPodValidator(Etcd(), Notes(), str(root)).check(old, new))


async def test_a_good_change(tmp_path: Path, manifests: Path) -> None:
    (manifests / "etcd.yaml").write_bytes(pod())
    (manifests / "kube-apiserver.yaml").write_bytes(pod("kube-apiserver"))
    (manifests / "README").write_text("no pod")
    (manifests / ".etcd.yaml").write_bytes(pod())
    assert await problems(tmp_path, config(etcd_yaml=pod()), config(etcd_yaml=pod(image="etcd:2"))) == []


@pytest.mark.parametrize("backup", ["etcd.yaml.bak", "etcd.yaml~", "etcd.rpmsave"])
async def test_a_backup_on_the_host_is_refused(tmp_path: Path, manifests: Path, backup: str) -> None:
    (manifests / "etcd.yaml").write_bytes(pod())
    (manifests / backup).write_bytes(pod(image="etcd:0"))
    (found,) = await problems(tmp_path, config(etcd_yaml=pod()), config(etcd_yaml=pod(image="etcd:2")))
    assert found.path == PATH
    assert backup in found.message


async def test_a_backup_in_the_config_is_refused(tmp_path: Path, manifests: Path) -> None:
    (manifests / "etcd.yaml").write_bytes(pod())
    new = config(etcd_yaml_bak=pod(image="etcd:0"))
    assert [found.path for found in await problems(tmp_path, config(), new)] == [f"{DIRECTORY}/etcd.yaml.bak"]


async def test_a_renamed_manifest_is_no_duplicate(tmp_path: Path, manifests: Path) -> None:
    (manifests / "etcd.yaml").write_bytes(pod())
    assert await problems(tmp_path, config(etcd_yaml=pod()), config(etcd2_yaml=pod())) == []


async def test_an_unchanged_backup_does_not_block_other_changes(tmp_path: Path, manifests: Path) -> None:
    (manifests / "etcd.yaml").write_bytes(pod())
    (manifests / "etcd.yaml.bak").write_bytes(pod())
    assert await problems(tmp_path, config(), of({"/etc/motd": b"hello"})) == []
    assert await problems(tmp_path, config(), config(other_yaml=pod("other"))) == []


@pytest.mark.parametrize(
    ("kind", "missing"), [("Directory", True), ("File", True), ("DirectoryOrCreate", False), ("", False)]
)
async def test_mounts(tmp_path: Path, manifests: Path, kind: str, missing: bool) -> None:
    new = config(etcd_yaml=mounting(kind))
    assert bool(await problems(tmp_path, config(), new)) is missing
    (tmp_path / "etc/pki/etcd").mkdir(parents=True)
    assert await problems(tmp_path, config(), new) == []


async def test_a_mount_that_the_config_brings(tmp_path: Path, manifests: Path) -> None:
    new = of({PATH: mounting("Directory"), "/etc/pki/etcd/ca.crt": b"x"})
    assert await problems(tmp_path, config(), new) == []
    other = of({PATH: mounting("Directory"), "/etc/pki/etcd2": b"x"})
    assert len(await problems(tmp_path, config(), other)) == 1


@pytest.mark.parametrize("side", ["host", "config", "revisions"])
async def test_a_pod_of_an_operator_is_refused(tmp_path: Path, manifests: Path, side: str) -> None:
    resources = "/etc/kubernetes/static-pod-resources/etcd-pod-7"
    owned = pod(volumes=[{"name": "r", "hostPath": {"path": resources}}])
    if side == "revisions":
        (tmp_path / resources.lstrip("/")).mkdir(parents=True)
    (manifests / "etcd.yaml").write_bytes(owned if side == "host" else pod())
    new = config(etcd_yaml=owned if side == "config" else pod(image="etcd:2"))
    with pytest.raises(Unreconcilable) as caught:
        await problems(tmp_path, config(), new)
    assert caught.value.reason is Reason.STATIC_POD_OWNED
    assert [found.path for found in caught.value.problems] == [PATH]


OWNED = pod(volumes=[{"name": "r", "hostPath": {"path": "/etc/kubernetes/static-pod-resources/etcd-pod-7"}}])


async def test_a_pod_of_an_operator_may_be_watched(tmp_path: Path, manifests: Path) -> None:
    (manifests / "etcd.yaml").write_bytes(OWNED)
    assert await problems(tmp_path, config(), config(etcd_yaml=OWNED)) == []
    assert await problems(tmp_path, config(etcd_yaml=OWNED), config()) == []
    # The operator has written its next revision.
    (manifests / "etcd.yaml").write_bytes(OWNED.replace(b"pod-7", b"pod-8"))
    assert await problems(tmp_path, config(etcd_yaml=OWNED), config()) == []


async def test_a_pod_of_an_operator_is_not_brought_about(tmp_path: Path, manifests: Path) -> None:
    with pytest.raises(Unreconcilable) as caught:
        await problems(tmp_path, config(), config(etcd_yaml=OWNED))
    assert caught.value.reason is Reason.STATIC_POD_OWNED
    (manifests / "etcd.yaml").write_bytes(pod())
    with pytest.raises(Unreconcilable):
        await problems(tmp_path, config(etcd_yaml=OWNED.replace(b"pod-7", b"pod-6")), config(etcd_yaml=OWNED))


async def test_nothing_is_there(tmp_path: Path) -> None:
    assert await problems(tmp_path, config(), config(etcd_yaml=pod())) == []
    assert await problems(tmp_path, config(), config()) == []


@pytest.mark.parametrize(
    ("cluster", "running", "wanted", "words"),
    [
        ("3.6.0", "etcd:v3.6.8", "etcd:v3.5.21", "cannot read the data of a cluster of version 3.6.0"),
        ("3.4.0", "etcd:3.4.30-0", "r:5000/etcd:3.6.8-0", "skips a minor release"),
        # It does not answer: the image that it has counts.
        ("", "etcd:3.6.8", "etcd:3.5.21@sha256:ab", "cannot read the data"),
        # A member of 3.5 is still there, or a downgrade is enabled.
        ("3.5.0", "etcd:3.6.8", "etcd:3.5.21", ""),
        ("3.5.0", "etcd:3.5.21", "etcd:3.6.8", ""),
        ("3.6.0", "etcd:3.6.8", "etcd:3.6.2", ""),
        ("3.6.0", "etcd:3.6.8", "etcd@sha256:ab", ""),
        ("", "etcd:latest", "etcd:3.5.21", ""),
    ],
)
async def test_the_version_of_etcd(
    tmp_path: Path, manifests: Path, cluster: str, running: str, wanted: str, words: str
) -> None:
    (manifests / "etcd.yaml").write_bytes(pod(image=running))
    validator = StaticPodValidator(Etcd(cluster), Notes(), str(tmp_path))
    old, new = config(etcd_yaml=pod(image=running)), config(etcd_yaml=pod(image=wanted))
    if not words:
        assert not await validator.check(old, new)
        return
    with pytest.raises(Refused) as caught:
        await validator.check(old, new)
    assert caught.value.reason is Reason.ETCD_VERSION
    assert words in caught.value.message


async def test_a_member_without_its_data_is_not_started(tmp_path: Path, manifests: Path) -> None:
    new = config(
        etcd_yaml=yaml.safe_dump(
            yaml.safe_load(pod())
            | {"spec": {"containers": [{"name": "etcd", "image": "e:1", "args": ["--data-dir=/data"]}]}}
        ).encode()
    )
    lost = StaticPodValidator(Etcd(), Notes("update-1 17"), str(tmp_path))
    with pytest.raises(Refused) as caught:
        await lost.check(config(), new)
    assert caught.value.reason is Reason.ETCD_DATA_LOST
    assert "member 11 " in caught.value.message
    # It answers, it was removed, it has its data.
    assert not await StaticPodValidator(Etcd("3.6.0"), Notes("update-1 17"), str(tmp_path)).check(config(), new)
    assert not await StaticPodValidator(Etcd(), Notes("update-2 "), str(tmp_path)).check(config(), new)
    (tmp_path / "data/member/wal").mkdir(parents=True)
    assert not await lost.check(config(), new)


async def test_another_directory_of_the_kubelet(tmp_path: Path) -> None:
    drop_in = tmp_path / "etc/kubernetes/kubelet.conf.d/1.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text("staticPodPath: /etc/pods")
    (tmp_path / "etc/pods").mkdir()
    (tmp_path / "etc/pods/etcd.bak").write_bytes(pod())
    (found,) = await problems(tmp_path, of({}), of({"/etc/pods/etcd.yaml": pod()}))
    assert "etcd.bak" in found.message
    assert await asyncio.to_thread(host_directory, tmp_path) == "/etc/pods"
    assert (await asyncio.to_thread(manifest_directories, tmp_path))[0] == "etc/pods"
