"""The directory of manifests as it will be on this host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.core.config.machineconfig import FileEntry, MachineConfig
from nodeagent.errors import Problem, Unreconcilable
from nodeagent.host.static_pods.validator import StaticPodValidator
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


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    directory = tmp_path / DIRECTORY.lstrip("/")
    directory.mkdir(parents=True)
    return directory


async def problems(root: Path, old: MachineConfig, new: MachineConfig) -> list[Problem]:
    return list(await StaticPodValidator(str(root)).check(old, new))


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


async def test_nothing_is_there(tmp_path: Path) -> None:
    assert await problems(tmp_path, config(), config(etcd_yaml=pod())) == []
    assert await problems(tmp_path, config(), config()) == []
