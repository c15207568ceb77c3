# SPDX-License-Identifier: Apache-2.0
"""A test host with a kubelet, as a node of a cluster of the tests.

    node = NodeHost(image, programs, "worker", cluster, relay_directory)
    node.boot()
    node.wait_ready()

The API server is reached through a relay, as in `integration.cluster.tcp_proxy`: the host has no network of its own but
the bridge of its pods.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from integration.cluster.api import ApiError
from integration.cluster.cluster import Cluster
from integration.cluster.tcp_proxy import INSIDE, listen_inside
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import Image
from integration.hosts.container.nspawn import NAMESPACE, Container
from integration.hosts.node.node_programs import NodePrograms

READY_TIMEOUT: Final = 180.0
STATE: Final = ("containerd", "kubelet")
"""Directories of /var/lib on the machine's own filesystem: one overlay cannot be the upper layer of another."""

# runc joins a session keyring, and queries the program that guards the devices of a cgroup.
SYSTEM_CALLS: Final = "--system-call-filter=@keyring bpf"
# The plugin of the bridge needs it; nspawn keeps it only in a private network.
NET_ADMIN: Final = "--capability=CAP_NET_ADMIN"
KUBELET_CONF: Final = "/etc/kubernetes/kubelet.conf"
CONTAINERD_CONF: Final = "/etc/containerd/config.toml"
POD_NETWORK: Final = "/etc/cni/net.d/10-pods.conflist"
MANIFESTS: Final = "/etc/kubernetes/manifests"
NODEAGENT_KUBECONFIG: Final = "/etc/nodeagent/kubeconfig"


def kubelet_configuration(**changes: Any) -> str:
    """A KubeletConfiguration for a test host, which may neither limit containers nor change the kernel."""
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "enforceNodeAllocatable": ["none"],
            "evictionHard": {},
            "failSwapOn": False,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "oomScoreAdj": 0,
            "staticPodPath": MANIFESTS,
            **changes,
        },
        indent=1,
    )


def pod_network(subnet: str) -> str:
    """A CNI configuration: a bridge in the host, and addresses of `subnet` for its pods."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "ipam": ipam}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]})


def kubeconfig(cluster: Cluster, user: str, groups: Sequence[str]) -> str:
    """Return a kubeconfig that contains the credentials: a host does not see the files of the machine."""
    document: dict[str, Any] = json.loads(cluster.kubeconfig(user, groups).read_text())
    for part in (document["clusters"][0]["cluster"], document["users"][0]["user"]):
        for key in ("certificate-authority", "client-certificate", "client-key"):
            if key in part:
                part[f"{key}-data"] = base64.b64encode(Path(part.pop(key)).read_bytes()).decode()
    return json.dumps(document)


class NodeHost(Host):
    """Off until boot(), like every host; its kubelet registers the Node at the first boot."""

    def __init__(
        self,
        image: Image,
        programs: NodePrograms,
        node: str,
        cluster: Cluster,
        relay: Path,
        *,
        address: str = "10.77.0.10",
        pods: str = "10.78.0.0/24",
        namespace: str = "",
    ) -> None:
        """`relay` is the directory with the socket that leads to the API server. `namespace` is a network namespace of
        this machine that the host gets instead of one of its own."""
        self.node = node
        self.address = address
        self._namespace = namespace
        self.cluster = cluster
        super().__init__(image, read_only={INSIDE: relay, **programs.mounts()})
        self.write("/etc/kubernetes/node.env", f"NODE_NAME={node}\nNODE_IP={address}\n")
        self.write(KUBELET_CONF, kubelet_configuration())
        self.write("/etc/kubernetes/ca.crt", cluster.authority.certificate.read_bytes())
        # Where OpenShift has it, too: /var/lib/kubelet/kubeconfig.
        credentials = self.directory / "kubelet/kubeconfig"
        credentials.touch(mode=0o600)
        credentials.write_text(kubeconfig(cluster, f"system:node:{node}", ["system:nodes"]))
        self.write(POD_NETWORK, pod_network(pods))
        listen_inside(self, cluster.port)

    def _install(self, image: Image, disk: str | None, binds: Sequence[str]) -> Container:
        for name in STATE:
            (self.directory / name).mkdir()
        state = [f"--bind={self.directory / name}:/var/lib/{name}" for name in STATE]
        network = [f"{NAMESPACE}/run/netns/{self._namespace}", NET_ADMIN] if self._namespace else []
        return super()._install(image, disk, [*binds, *state, SYSTEM_CALLS, *network])

    # The Node and its pods, by the API server.

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.node}"

    def is_ready(self) -> bool:
        found = self.cluster.admin.find(self.path)
        conditions = found["status"].get("conditions", ()) if found else ()
        return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)

    def wait_ready(self, timeout: float = READY_TIMEOUT) -> None:
        self.wait_for(self.is_ready, f"Node {self.node} is Ready", timeout)

    def pods(self) -> dict[str, dict[str, Any]]:
        """The pods of the node in all namespaces, by name."""
        found = self.cluster.admin.get("/api/v1/pods", fieldSelector=f"spec.nodeName={self.node}")["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def wait_pods_ready(self, *names: str, timeout: float = READY_TIMEOUT) -> None:
        def ready() -> bool:
            pods = self.pods()
            return all(name in pods and pod_ready(pods[name]) for name in names)

        self.wait_for(ready, f"pods {', '.join(names)} are ready on {self.node}", timeout)

    def container_ids(self) -> dict[str, str]:
        """Pod to the id of its first container, of the pods whose container runs according to the runtime."""
        running = self.run(["ctr", "--namespace=k8s.io", "tasks", "list"]).stdout.splitlines()
        alive = {line.split()[0] for line in running if line.endswith("RUNNING")}
        ids = {name: _container_id(pod) for name, pod in self.pods().items()}
        return {name: found for name, found in ids.items() if found in alive}

    def delete_pods(self) -> None:
        """Remove the pods of the tests at once, and wait until the kubelet has removed them."""
        for pod in self.pods().values():
            if "kubernetes.io/config.mirror" not in pod["metadata"].get("annotations", {}):
                with contextlib.suppress(ApiError):
                    self.cluster.admin.delete(pod_path(pod), gracePeriodSeconds="1")
        mirrors = "kubernetes.io/config.mirror"
        self.wait_for(
            lambda: all(mirrors in pod["metadata"].get("annotations", {}) for pod in self.pods().values()),
            "the pods are gone",
        )


def pod_path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def pod_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def _container_id(pod: dict[str, Any]) -> str:
    statuses = pod["status"].get("containerStatuses") or [{}]
    return str(statuses[0].get("containerID", "")).removeprefix("containerd://")
