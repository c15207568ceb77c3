# SPDX-License-Identifier: Apache-2.0
"""Detection of a member of etcd on a host, in trees of files as kubeadm, OpenShift, RKE2 and systemd leave them."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from nodeagent.host.etcd.detect import detect
from nodeagent.host.etcd.options import Endpoints, Options, endpoints
from nodeagent.host.etcd.processes import processes

KUBEADM = """
kind: Pod
spec:
  hostNetwork: true
  containers:
  - name: etcd
    command:
    - etcd
    - --name=cp-1
    - --advertise-client-urls=https://10.0.0.1:2379
    - --listen-client-urls=https://127.0.0.1:2379,https://10.0.0.1:2379
    - --initial-cluster=cp-1=https://10.0.0.1:2380,cp-2=https://10.0.0.2:2380
    - --cert-file=/etc/kubernetes/pki/etcd/server.crt
    volumeMounts:
    - {mountPath: /etc/kubernetes/pki/etcd, name: certs}
  volumes:
  - {name: certs, hostPath: {path: /etc/pki-of-the-host}}
"""
OPENSHIFT = """
kind: Pod
spec:
  containers:
  - name: etcdctl
    command: [/bin/bash, -c, sleep infinity]
  - name: etcd
    command:
    - /bin/sh
    - -c
    - |
      # the member
      exec etcd \\
        --name="${NODE_ip_10_0_0_1_ETCD_NAME}" \\
        --cert-file=/etc/kubernetes/static-pod-certs/serving.crt \\
        --listen-client-urls=https://0.0.0.0:2379,unixs://10.0.0.1:0
    env:
    - {name: ETCD_DATA_DIR, value: /var/lib/etcd}
    - {name: ETCD_TOKEN_OF_OTHERS, value: secret}
    volumeMounts:
    - {mountPath: /etc/kubernetes/static-pod-certs, name: cert-dir}
  volumes:
  - {name: cert-dir, hostPath: {path: /etc/kubernetes/static-pod-resources/etcd-certs}}
"""


def put(root: Path, path: str, text: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def stat(number: int, comm: str, state: str = "S") -> str:
    return f"{number} ({comm}) {state} {' '.join(['0'] * 50)}\n"


def process(
    root: Path,
    number: int,
    *words: str,
    network: str = "host",
    comm: str = "etcd",
    uid: int = 0,
    cgroup: str = "/system.slice/x.service",
) -> Path:
    directory = root / f"proc/{number}"
    put(root, f"proc/{number}/stat", stat(number, comm))
    put(root, "proc/stat", "btime 1\n")  # psutil 6 reads it of each process
    put(root, f"proc/{number}/cmdline", "".join(f"{word}\0" for word in words))
    put(root, f"proc/{number}/environ", "ETCD_NAME=from-env\0SECRET=x\0")
    put(root, f"proc/{number}/status", f"Name:\t{comm}\nState:\tS (sleeping)\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    put(root, f"proc/{number}/cgroup", f"0::{cgroup}\n")
    (directory / "root").mkdir()
    (directory / "net").mkdir()
    if not (shared := root / f"network-{network}").exists():
        shared.write_text("")
    (directory / "net/dev").hardlink_to(shared)
    return directory


@pytest.fixture
def untraceable(monkeypatch: pytest.MonkeyPatch) -> None:
    """proc for who may not trace other processes: without CAP_SYS_PTRACE, as the daemon."""
    stat = Path.stat

    def environ(process: psutil.Process) -> dict[str, str]:
        raise psutil.AccessDenied(process.pid)

    def stat_of(path: Path, **options: bool) -> os.stat_result:
        if path.name == "root" and path.parent.name.isdigit():
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(psutil.Process, "environ", environ)
    monkeypatch.setattr(Path, "stat", stat_of)


def test_nothing_is_here(tmp_path: Path) -> None:
    put(tmp_path, "etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{name: kube-apiserver}]}")
    put(tmp_path, "etc/kubernetes/manifests/broken.yaml", "{")
    put(tmp_path, "etc/kubernetes/manifests/tag.yaml", "spec: !!bool maybe")
    put(tmp_path, "usr/lib/systemd/system/etcd.service")  # installed, and not enabled
    (tmp_path / "var/lib/etcd").mkdir(parents=True)
    assert detect(tmp_path) is None


def test_a_static_pod_of_kubeadm(tmp_path: Path) -> None:
    put(tmp_path, "etc/kubernetes/manifests/etcd.yaml", KUBEADM)
    found = detect(tmp_path)
    assert found is not None
    assert found.signs == ("static pod /etc/kubernetes/manifests/etcd.yaml",)
    assert found.options.get("cert-file") == str(tmp_path / "etc/pki-of-the-host/server.crt")
    assert endpoints(found.options) == Endpoints(
        ("https://127.0.0.1:2379", "https://10.0.0.1:2379"), ("https://10.0.0.2:2379",)
    )


@pytest.mark.parametrize("name", ["etcd.manifest", "etcd.yaml.bak", "etcd.yaml~", "etcd"])
def test_every_visible_file_is_a_manifest(tmp_path: Path, name: str) -> None:
    """The kubelet reads all of them, whatever the suffix."""
    put(tmp_path, f"etc/kubernetes/manifests/{name}", KUBEADM)
    found = detect(tmp_path)
    assert found is not None
    assert found.signs == (f"static pod /etc/kubernetes/manifests/{name}",)


def test_what_the_kubelet_does_not_read_is_no_manifest(tmp_path: Path) -> None:
    put(tmp_path, "etc/kubernetes/manifests/.etcd.yaml", KUBEADM)
    put(tmp_path, "etc/kubernetes/manifests/old/etcd.yaml", KUBEADM)
    os.mkfifo(tmp_path / "etc/kubernetes/manifests/pipe")
    assert detect(tmp_path) is None


def test_manifests_at_the_path_of_the_kubelet(tmp_path: Path) -> None:
    put(tmp_path, "etc/kubernetes/kubelet.conf", "staticPodPath: /etc/static")
    put(tmp_path, "etc/static/etcd.yaml", KUBEADM)
    found = detect(tmp_path)
    assert found is not None
    assert found.signs == ("static pod /etc/static/etcd.yaml",)


@pytest.mark.parametrize(
    "text",
    [
        "spec: text",
        "spec: {containers: text}",
        "spec: {containers: [1, {name: other, command: text}]}",
        "spec: {containers: [{name: other, env: [1], volumeMounts: text}], volumes: {a: b}}",
        "spec: {containers: [{name: other, volumeMounts: [{name: {a: b}}]}], volumes: [{name: [c]}]}",
    ],
)
def test_manifests_of_any_shape(tmp_path: Path, text: str) -> None:
    put(tmp_path, "etc/kubernetes/manifests/odd.yaml", text)
    put(tmp_path, "etc/kubernetes/manifests/odd2.yaml", text.replace("other", "etcd"))
    detect(tmp_path)


def test_a_static_pod_whose_command_is_a_script(tmp_path: Path) -> None:
    put(tmp_path, "etc/kubernetes/manifests/etcd-pod.yaml", OPENSHIFT)
    found = detect(tmp_path)
    assert found is not None
    assert found.options.flags == {
        "data-dir": str(tmp_path / "var/lib/etcd"),
        "cert-file": str(tmp_path / "etc/kubernetes/static-pod-resources/etcd-certs/serving.crt"),
        "listen-client-urls": "https://0.0.0.0:2379,unixs://10.0.0.1:0",
    }
    assert endpoints(found.options).ours == ("https://127.0.0.1:2379",)


def test_a_process_knows_best(tmp_path: Path) -> None:
    put(tmp_path, "etc/kubernetes/manifests/etcd.yaml", KUBEADM)
    process(tmp_path, 1, "/sbin/init", comm="systemd")
    process(tmp_path, 77, "etcd", "--cert-file", "/pki/server.crt", "-listen-client-urls=https://[::]:2379")
    found = detect(tmp_path)
    assert found is not None
    assert found.signs == ("process 77", "static pod /etc/kubernetes/manifests/etcd.yaml")
    assert found.options.flags == {
        "name": "from-env",
        "cert-file": f"{tmp_path}/proc/77/root/pki/server.crt",
        "listen-client-urls": "https://[::]:2379",
    }
    assert endpoints(found.options).ours == ("https://[::1]:2379",)


def test_the_etcd_of_a_workload_is_not_the_hosts(tmp_path: Path) -> None:
    process(tmp_path, 1, "/sbin/init", comm="systemd")
    process(tmp_path, 78, "etcd", network="of a pod")
    assert detect(tmp_path) is None


@pytest.mark.finding(
    "etcd: processes that look like a member",
    "A process named etcd that cannot be inspected counts as the member: the update waits.",
)
@pytest.mark.usefixtures("untraceable")
def test_a_process_that_cannot_be_inspected_counts(tmp_path: Path) -> None:
    process(tmp_path, 1, "/sbin/init", comm="systemd")
    words = ("--data-dir=/srv/etcd", "--listen-client-urls=http://127.0.0.1:2399")
    process(tmp_path, 77, "/opt/etcd", *words)
    process(tmp_path, 78, "etcd", network="of a pod")
    found = detect(tmp_path)
    assert found is not None
    assert found.signs == ("process 77",)
    assert found.options.get("data-dir") == f"{tmp_path}/srv/etcd"
    assert endpoints(found.options).ours == ("http://127.0.0.1:2399",)


CONFIG = """
name: cp-1
listen-client-urls: https://127.0.0.1:2399
client-transport-security: {cert-file: /etc/tls/etcd.crt}
"""


@pytest.mark.usefixtures("untraceable")
def test_a_config_file_of_etcd(tmp_path: Path) -> None:
    put(tmp_path, "run/etcd.yaml", CONFIG)
    process(tmp_path, 77, "etcd", "--config-file=/run/etcd.yaml", "--name=ignored")
    found = detect(tmp_path)
    assert found is not None
    assert found.options.flags == {
        "name": "cp-1",
        "config-file": f"{tmp_path}/run/etcd.yaml",
        "listen-client-urls": "https://127.0.0.1:2399",
        "cert-file": f"{tmp_path}/etc/tls/etcd.crt",
    }


def test_a_config_file_of_etcd_in_a_container(tmp_path: Path) -> None:
    inside = process(tmp_path, 77, "etcd", "--config-file=/run/etcd.yaml") / "root"
    put(inside, "run/etcd.yaml", CONFIG)
    found = detect(tmp_path)
    assert found is not None
    assert found.options.get("cert-file") == f"{inside}/etc/tls/etcd.crt"
    assert found.options.get("name") == "cp-1"


@pytest.mark.usefixtures("untraceable")
def test_the_environment_of_a_unit_is_read_from_its_file(tmp_path: Path) -> None:
    put(
        tmp_path,
        "etc/default/etcd",
        '# ETCD_NAME=none\nETCD_NAME="cp-1"\nETCD_CERT_FILE=/etc/tls/etcd.crt\nETCD_LISTEN_CLIENT_URLS=https://[::1]:4001\nX=1\n',
    )
    process(tmp_path, 77, "/usr/bin/etcd", "--name=cp-2", uid=110)
    found = detect(tmp_path)
    assert found is not None
    assert found.options.flags == {
        "name": "cp-2",
        "cert-file": f"{tmp_path}/etc/tls/etcd.crt",
        "listen-client-urls": "https://[::1]:4001",
    }


@pytest.mark.usefixtures("untraceable")
def test_a_manifest_knows_better_than_a_process_that_cannot_be_inspected(tmp_path: Path) -> None:
    put(tmp_path, "etc/kubernetes/manifests/etcd.yaml", KUBEADM)
    process(tmp_path, 77, "etcd", "--cert-file=/pki-of-the-container/server.crt")
    found = detect(tmp_path)
    assert found is not None
    assert found.signs == ("process 77", "static pod /etc/kubernetes/manifests/etcd.yaml")
    assert found.options.get("cert-file") == str(tmp_path / "etc/pki-of-the-host/server.crt")


def test_a_process_of_which_nothing_is_known_counts(tmp_path: Path) -> None:
    process(tmp_path, 1, "/sbin/init", comm="systemd")
    directory = process(tmp_path, 77)
    for name in ("net/dev", "status", "cgroup", "environ"):
        (directory / name).unlink()
    assert [each.pid for each in processes(tmp_path)] == [77]
    assert not processes(tmp_path)[0].is_of_the_system


def test_processes_that_proc_hides_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(tmp_path, 77, "etcd")

    def hidden(process: psutil.Process) -> str:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "name", hidden)
    assert processes(tmp_path) == []


def test_a_renamed_process_is_known_by_its_program(tmp_path: Path) -> None:
    process(tmp_path, 77, "/usr/local/bin/etcd", "--name=x", comm="main")
    assert [each.pid for each in processes(tmp_path)] == [77]


def test_users_block_nothing_with_a_name(tmp_path: Path) -> None:
    process(tmp_path, 77, "etcd", uid=1000, cgroup="/user.slice/user-1000.slice/session-1.scope")
    put(tmp_path, "proc/78/stat", stat(78, "etcd", "Z"))
    put(tmp_path, "proc/78/cmdline")
    put(tmp_path, "proc/78/status", "State:\tZ (zombie)\n")
    assert processes(tmp_path) == []
    process(tmp_path, 79, "etcd", uid=0, cgroup="/user.slice/user-0.slice/session-2.scope")
    process(tmp_path, 80, "etcd", uid=1000, cgroup="/system.slice/etcd.service")
    assert [each.pid for each in processes(tmp_path)] == [79, 80]


def test_an_enabled_unit(tmp_path: Path) -> None:
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    (wants / "etcd.service").symlink_to("/usr/lib/systemd/system/etcd.service")
    found = detect(tmp_path)
    assert found is not None
    assert found.signs == ("unit etcd.service",)


def test_a_member_that_is_down_is_known_by_its_data(tmp_path: Path) -> None:
    (tmp_path / "var/lib/etcd/member").mkdir(parents=True)
    found = detect(tmp_path)
    assert found is not None
    assert found.signs == ("data directory /var/lib/etcd",)


def test_an_embedded_one_has_its_gateway_elsewhere(tmp_path: Path) -> None:
    config = """
name: rke-1
listen-client-urls: https://127.0.0.1:2379,https://10.0.0.1:2379
listen-client-http-urls: https://127.0.0.1:2382
client-transport-security: {cert-file: /tls/server.crt, client-cert-auth: true}
"""
    put(tmp_path, "var/lib/rancher/rke2/server/db/etcd/config", config)
    (tmp_path / "var/lib/rancher/rke2/server/db/etcd/member").mkdir()
    found = detect(tmp_path)
    assert found is not None
    assert found.options.get("cert-file") == str(tmp_path / "tls/server.crt")
    assert endpoints(found.options) == Endpoints(("https://127.0.0.1:2382",), port=2382)


def test_a_file_in_the_data_of_a_member_is_no_configuration(tmp_path: Path) -> None:
    """Only k3s and rke2 write one there."""
    put(tmp_path, "var/lib/etcd/config", "client-transport-security: {cert-file: /tls/server.crt}\n")
    (tmp_path / "var/lib/etcd/member").mkdir()
    found = detect(tmp_path)
    assert found is not None
    assert found.options == Options({})


@pytest.mark.parametrize("value", ["", "unix:///run/etcd.sock", "https://:x", "garbage,,"])
def test_without_an_address_the_usual_one_counts(value: str) -> None:
    assert endpoints(Options({"listen-client-urls": value})).ours == ("http://127.0.0.1:2379",)
