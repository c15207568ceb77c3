# SPDX-License-Identifier: Apache-2.0
"""kube-scheduler and the controllers that the tests need, beside the API server of the tests."""

from __future__ import annotations

from typing import Final

from integration.cluster.cluster import ADMINS, Cluster
from integration.cluster.server import Server
from integration.hosts.node.node_programs import NodePrograms

CONTROLLERS: Final = (
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "node-lifecycle-controller",
    "replicaset-controller",
    "taint-eviction-controller",
)


class Controllers:
    def __init__(self, cluster: Cluster, programs: NodePrograms) -> None:
        kubeconfig = cluster.kubeconfig("controllers", [ADMINS])
        common = [f"--kubeconfig={kubeconfig}", "--secure-port=0", "--leader-elect=false"]
        chosen = ["--use-service-account-credentials=false", f"--controllers={','.join(CONTROLLERS)}"]
        self._servers = [
            Server(name, [str(programs.program(name)), *common, *options], cluster.directory / f"{name}.log", bool)
            for name, options in (("kube-scheduler", []), ("kube-controller-manager", chosen))
        ]

    def start(self) -> None:
        for server in self._servers:
            server.start()

    def close(self) -> None:
        for server in self._servers:
            server.kill()
