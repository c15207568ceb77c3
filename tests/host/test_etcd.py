"""Whether a member of etcd is on a host, found in trees of files as kubeadm, OpenShift, RKE2 and systemd leave them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nodeagent.host.clock import SystemClock
from nodeagent.host.etcd.detect import detect
from nodeagent.host.etcd.guard import EtcdGuard, Report
from nodeagent.host.etcd.options import Endpoints, Options, endpoints

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


def process(root: Path, number: int, *words: str, network: str = "net:[1]", comm: str = "etcd") -> None:
    put(root, f"proc/{number}/comm", f"{comm}\n")
    put(root, f"proc/{number}/cmdline", "".join(f"{word}\0" for word in words))
    put(root, f"proc/{number}/environ", "ETCD_NAME=from-env\0SECRET=x\0")
    (root / f"proc/{number}/ns").mkdir()
    (root / f"proc/{number}/ns/net").symlink_to(network)


def test_nothing_is_here(tmp_path: Path) -> None:
    put(tmp_path, "etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{name: kube-apiserver}]}")
    put(tmp_path, "etc/kubernetes/manifests/broken.yaml", "{")
    put(tmp_path, "usr/lib/systemd/system/etcd.service")  # installed, and not enabled
    (tmp_path / "var/lib/etcd").mkdir(parents=True)
    assert detect(tmp_path) is None
    report = asyncio.run(EtcdGuard(SystemClock(), root=tmp_path).look())
    assert report == Report()
    assert report.verdict.allowed


def test_a_static_pod_of_kubeadm(tmp_path: Path) -> None:
    put(tmp_path, "etc/kubernetes/manifests/etcd.yaml", KUBEADM)
    found = detect(tmp_path)
    assert found is not None
    assert found.signs == ("static pod /etc/kubernetes/manifests/etcd.yaml",)
    assert found.options.get("cert-file") == str(tmp_path / "etc/pki-of-the-host/server.crt")
    assert endpoints(found.options) == Endpoints(
        ("https://127.0.0.1:2379", "https://10.0.0.1:2379"), ("https://10.0.0.2:2379",)
    )


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
    process(tmp_path, 78, "etcd", network="net:[2]")
    assert detect(tmp_path) is None


def test_an_enabled_unit(tmp_path: Path) -> None:
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    (wants / "etcd.service").symlink_to("/usr/lib/systemd/system/etcd.service")
    found = detect(tmp_path)
    assert found is not None
    assert found.signs == ("unit etcd.service",)


async def test_a_member_that_is_down_is_known_by_its_data(tmp_path: Path) -> None:
    (tmp_path / "var/lib/etcd/member").mkdir(parents=True)
    report = await EtcdGuard(SystemClock(), root=tmp_path, timeout=0.5).look()
    assert report.signs == ("data directory /var/lib/etcd",)
    assert [refusal.reason for refusal in report.verdict.refusals] == ["EtcdUnreachable"]


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


@pytest.mark.parametrize("value", ["", "unix:///run/etcd.sock", "https://:x", "garbage,,"])
def test_without_an_address_the_usual_one_counts(value: str) -> None:
    assert endpoints(Options({"listen-client-urls": value})).ours == ("http://127.0.0.1:2379",)
