# SPDX-License-Identifier: Apache-2.0
"""The manifest of a static pod that runs etcd by permission only, and its start and stop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.core.validate.static_pod import StaticPod, load
from nodeagent.errors import InvalidInput
from nodeagent.features.etcd_members.config import (
    MemberConfig,
    forget_other_members,
    read_member_config,
    write_member_file,
)
from nodeagent.features.etcd_members.pod import MemberPod, manifest_problem
from nodeagent.host.clock import SystemClock
from nodeagent.host.etcd.proof import MemberProof
from nodeagent.host.fs.files import HostFiles
from nodeagent.host.static_pods.replacement import KubeletStaticPods
from nodeagent.host.static_pods.running import Crictl
from tests.host.static_pods.test_replacement import Notes

FILE = "/run/nodeagent/etcd/member.json"
DATA = "/var/lib/etcd"


def pod(*words: str, mounts: dict[str, str] | None = None, kind: str = "File", host_network: bool = True) -> StaticPod:
    """`mounts` is the path of the host to the path inside."""
    named = list((mounts or {FILE: FILE, DATA: DATA}).items())
    container: dict[str, Any] = {
        "name": "etcd",
        "image": "etcd:1",
        "command": ["etcd", *(words or (f"--config-file={FILE}",))],
        "volumeMounts": [{"name": f"v{at}", "mountPath": inside} for at, (_, inside) in enumerate(named)],
    }
    volumes = [
        {"name": f"v{at}", "hostPath": {"path": path, "type": kind if path == FILE else ""}}
        for at, (path, _) in enumerate(named)
    ]
    spec = {"hostNetwork": host_network, "containers": [container], "volumes": volumes}
    found = load(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "e"}, "spec": spec}).encode())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (pod(), ""),
        (pod("--name=a"), "must run with --config-file=/run/nodeagent/etcd/member.json"),
        (pod(kind=""), "with the type File"),
        (pod(kind="FileOrCreate"), "with the type File"),
        (pod(mounts={"/tmp/other": FILE, DATA: DATA}), "with the type File"),
        (pod(mounts={FILE: FILE}), "must mount /var/lib/etcd at the same path"),
        (pod(mounts={FILE: FILE, "/srv/etcd": DATA}), "must mount /var/lib/etcd at the same path"),
        (pod(mounts={FILE: FILE, "/var/lib": "/var/lib"}), ""),
        (pod(host_network=False), "hostNetwork"),
    ],
)
def test_a_pod_that_the_kubelet_starts_only_by_permission(manifest: StaticPod, words: str) -> None:
    found = manifest_problem(manifest, Path(DATA), Path(FILE))
    assert words in found
    assert bool(words) == bool(found)


def member_config(tmp_path: Path) -> MemberConfig:
    config = tmp_path / "etcd.yaml"
    config.write_text(f"name: n\ndata-dir: {tmp_path}\ninitial-advertise-peer-urls: http://n:2380\n")
    settings = tmp_path / "member.yaml"
    settings.write_text(f"config: {config}\nendpoints: [http://a:2379]\nstatic_pod: {tmp_path}/pod.yaml\n")
    for path in (config, settings):
        path.chmod(0o600)
    found = asyncio.run(read_member_config(str(settings)))
    assert found is not None
    return found


def test_a_member_with_data_has_no_others_in_its_config(tmp_path: Path) -> None:
    found = member_config(tmp_path)
    written = tmp_path / "run/member.json"
    forget_other_members(found, written)
    assert not written.exists()
    write_member_file(found, "n=http://n:2380,a=http://a:2380", written)
    forget_other_members(found, written)
    document = yaml.safe_load(written.read_text())
    assert (document["initial-cluster"], document["initial-cluster-state"]) == ("n=http://n:2380", "existing")
    before = written.stat().st_ino
    forget_other_members(found, written)
    assert written.stat().st_ino == before


def test_a_manifest_that_users_can_write_is_not_run(tmp_path: Path) -> None:
    pods = KubeletStaticPods(
        HostFiles(str(tmp_path)), Notes(), SystemClock(), Crictl(), MemberProof(tmp_path / "db"), root=str(tmp_path)
    )
    member = MemberPod(member_config(tmp_path), pods, member_file=tmp_path / "member.json", root=tmp_path)
    manifest = tmp_path / "pod.yaml"

    def refused() -> str:
        with pytest.raises(InvalidInput) as caught:
            asyncio.run(member.start("etcd.service", 1.0))
        return str(caught.value.reason)

    assert refused() == "EtcdConfigInvalid"
    manifest.write_text("kind: Pod")
    assert refused() == "EtcdConfigInvalid"
    manifest.chmod(0o666)
    assert refused() == "UnsafeConfig"
    assert not (tmp_path / "etc").exists()
