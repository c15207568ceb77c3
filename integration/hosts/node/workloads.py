# SPDX-License-Identifier: Apache-2.0
"""Pods of the tests: objects for the API server, and manifests of static pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from integration.hosts.node.node_programs import ETCD, WORKLOAD

PORT: Final = 8080


def workload(
    *,
    linger: str = "0s",
    exit_after: str = "",
    grace: int = 30,
    serve: bool = False,
    scratch: bool = False,
    **spec: Any,
) -> dict[str, Any]:
    """The spec of a pod that runs the workload of `integration/cluster/containers`.

    `linger` and `exit_after` are Go durations; `grace` is in seconds; `serve` gives it a service and a readiness
    probe; `scratch` gives it an emptyDir.
    """
    env = {"LINGER": linger, **({"EXIT": exit_after} if exit_after else {}), **({"PORT": str(PORT)} if serve else {})}
    container: dict[str, Any] = {
        "name": "app",
        "image": WORKLOAD,
        "imagePullPolicy": "Never",
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    if serve:
        container["readinessProbe"] = {"httpGet": {"port": PORT, "path": "/"}, "periodSeconds": 1}
    made = {
        "terminationGracePeriodSeconds": grace,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        **spec,
    }
    if scratch:
        container["volumeMounts"] = [{"name": "scratch", "mountPath": "/scratch"}]
        made["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    return made


def pod(name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"app": name}, **metadata}, "spec": spec}


def template(app: str, spec: dict[str, Any]) -> dict[str, Any]:
    """The part of a Deployment or DaemonSet that describes its pods."""
    labels = {"app": app}
    return {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}


def etcd_pod(
    name: str,
    address: str,
    *,
    members: Mapping[str, str] | None = None,
    state: str = "new",
    image: str = ETCD,
) -> dict[str, Any]:
    """A static pod of etcd as kubeadm writes one, without TLS. `members` maps the names of all members to addresses."""
    peers = ",".join(f"{member}=http://{at}:2380" for member, at in (members or {name: address}).items())
    clients = f"http://{address}:2379"
    flags = [
        f"--name={name}", "--data-dir=/var/lib/etcd",
        f"--listen-client-urls={clients},http://127.0.0.1:2379", f"--advertise-client-urls={clients}",
        f"--listen-peer-urls=http://{address}:2380", f"--initial-advertise-peer-urls=http://{address}:2380",
        f"--initial-cluster={peers}", f"--initial-cluster-state={state}",
        "--listen-metrics-urls=http://127.0.0.1:2381",
    ]  # fmt: skip

    def probe(path: str, **more: int) -> dict[str, Any]:
        return {"httpGet": {"host": "127.0.0.1", "port": 2381, "path": path}, **more}

    container = {
        "name": "etcd",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["/etcd", *flags],
        "startupProbe": probe("/readyz", periodSeconds=1, failureThreshold=60),
        "readinessProbe": probe("/readyz", periodSeconds=1),
        "livenessProbe": probe("/livez", periodSeconds=10, failureThreshold=8),
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/etcd"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "etcd", "namespace": "kube-system", "labels": {"component": "etcd"}},
        "spec": {
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            "containers": [container],
            "volumes": [{"name": "data", "hostPath": {"path": "/var/lib/etcd", "type": "DirectoryOrCreate"}}],
        },
    }
