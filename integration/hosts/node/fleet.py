# SPDX-License-Identifier: Apache-2.0
"""Three nodes of a control plane: a member of etcd on each as a static pod, and a service with a disruption budget.

The API server of the tests has an etcd of its own, so it answers whatever happens to this one.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from integration.cluster.cluster import SLOT_PATH, Cluster
from integration.hosts import nodeagent_client as agent
from integration.hosts.container.image import Image
from integration.hosts.errors import HostTimeout
from integration.hosts.node.node_host import (
    KUBELET_CONF,
    MANIFESTS,
    NODEAGENT_KUBECONFIG,
    NodeHost,
    kubeconfig,
    kubelet_configuration,
    pod_ready,
)
from integration.hosts.node.node_network import NodeNetwork
from integration.hosts.node.node_programs import ETCD, NodePrograms
from integration.hosts.node.workloads import etcd_pod, template, workload

NODES: Final = ("cp-1", "cp-2", "cp-3")
ETCD_MANIFEST: Final = f"{MANIFESTS}/etcd.yaml"
UNLISTED: Final = "/etc/release-of-the-fleet"
"""A file without an entry in the policy: its change needs a drain and a reboot."""
APP: Final = "shop"
REPLICAS: Final = 3
LEAST: Final = 2
POOL: Final = "control-plane"
UP_TIMEOUT: Final = 240.0


class Fleet:
    def __init__(self, cluster: Cluster, image: Image, programs: NodePrograms, relay: Path) -> None:
        """`cluster` has the rights of nodeagent, and controllers."""
        self.cluster = cluster
        self.network = NodeNetwork(NODES)
        self.hosts: dict[str, NodeHost] = {}
        self._image, self._programs, self._relay = image, programs, relay
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.network)
            for name in NODES:
                host = stack.enter_context(self._host(name))
                self.hosts[name] = host
                host.boot()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for name in NODES:
            self.cluster.admin.delete(f"/api/v1/nodes/{name}")

    def _host(self, name: str) -> NodeHost:
        network = self.network
        host = NodeHost(
            self._image,
            self._programs,
            name,
            self.cluster,
            self._relay,
            address=network.address(name),
            pods=network.pods(name),
            namespace=network.namespace(name),
        )
        host.write(NODEAGENT_KUBECONFIG, kubeconfig(self.cluster, f"nodeagent:{name}", ["nodeagent"]))
        about = {"node_name": name, "cluster": {"kubeconfig": NODEAGENT_KUBECONFIG}}
        agent.settings(host, {**about, "slots": {"pool": POOL, "max_unavailable": 1}, "verify": {"timeout": 60}})
        host.write(agent.POLICY, agent.policy(files={KUBELET_CONF: ["Restart kubelet.service"]}))
        for path, text in self.files(name).items():
            host.write(path, text)
        return host

    def files(self, name: str, *, pods: int = 110, image: str = ETCD, release: str = "1") -> Mapping[str, str]:
        """The files of a config for the node."""
        members = {node: self.network.address(node) for node in NODES}
        manifest = etcd_pod(name, members[name], members=members, image=image)
        return {
            KUBELET_CONF: kubelet_configuration(maxPods=pods),
            ETCD_MANIFEST: json.dumps(manifest, indent=1),
            UNLISTED: release,
        }

    def apply(self, config: str, **changes: Any) -> None:
        """Make a config with these `changes` the desired one of all nodes at once."""
        for name, host in self.hosts.items():
            agent.apply(host, agent.machine_config(config, files=self.files(name, **changes)))

    def wait_up(self) -> None:
        for host in self.hosts.values():
            host.wait_ready(UP_TIMEOUT)
            agent.wait_daemon(host)
        any_host = self.hosts[NODES[0]]
        any_host.wait_for(lambda: all(map(self.etcd_ready, NODES)), "etcd is ready on all nodes", UP_TIMEOUT)

    def deploy(self) -> None:
        """The service, its pods spread over the nodes, and its budget."""
        spread = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": APP}},
        }
        spec = workload(serve=True, grace=5, topologySpreadConstraints=[spread])
        deployment = {"metadata": {"name": APP}, "spec": {"replicas": REPLICAS, **template(APP, spec)}}
        self.cluster.admin.create("/apis/apps/v1/namespaces/default/deployments", deployment)
        budget = {"minAvailable": LEAST, "selector": {"matchLabels": {"app": APP}}}
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        self.cluster.admin.create(path, {"metadata": {"name": APP}, "spec": budget})
        self.hosts[NODES[0]].wait_for(lambda: len(self.endpoints()) == REPLICAS, "the service is up", UP_TIMEOUT)

    # What is looked at from outside.

    def endpoints(self) -> list[str]:
        """Addresses of the pods of the service that are ready and not ending."""
        found = self.cluster.admin.get("/api/v1/namespaces/default/pods", labelSelector=f"app={APP}")["items"]
        ready = [pod for pod in found if pod_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
        return [pod["status"]["podIP"] for pod in ready]

    def slots(self) -> list[str]:
        """Names of the slots of the pool that are held."""
        return [lease["metadata"]["name"] for lease in self.cluster.admin.get(SLOT_PATH)["items"]]

    def etcd_ready(self, name: str) -> bool:
        """Return whether the member answers inside the host."""
        url = "http://127.0.0.1:2381/readyz"
        host = self.hosts[name]
        probe = f"exec 3<>/dev/tcp/127.0.0.1/2381; printf 'GET {url} HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3"
        return " 200 " in host.run(["bash", "-c", probe], check=False).stdout

    def done(self, config: str) -> bool:
        return all(self._done(host, config) for host in self.hosts.values())

    def _done(self, host: NodeHost, config: str) -> bool:
        status = agent.status(host)
        if status["phase"] == "Degraded" and status["desired"] == config:
            raise HostTimeout(f"{host.node} is degraded: {status['reason']}: {status['message']}")
        return bool(status["phase"] == "Idle" and status["current"] == config)


def request(address: str, port: int, path: str, body: Mapping[str, Any] | None = None, timeout: float = 1.0) -> Any:
    """The answer of a member of etcd as JSON, or as text. Raises OSError and HTTPException without one, or with another
    status than 200."""
    connection = http.client.HTTPConnection(address, port, timeout=timeout)
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise http.client.HTTPException(f"status {response.status}")
        return text.decode() if body is None else json.loads(text)
    finally:
        connection.close()
