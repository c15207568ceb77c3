# SPDX-License-Identifier: Apache-2.0
"""An API server for the host of the benchmark: with its credentials and the rights of packaging/kubernetes."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from integration.cluster import programs
from integration.cluster.cluster import Cluster
from integration.cluster.controller import Controller
from integration.cluster.tcp_proxy import relay
from integration.cluster.test_fleet_status_cost import fill as fill_nodes
from integration.cluster.test_rights import documents, path_of
from integration.cluster.test_rollout_order import install

NODE: Final = "rest"
KUBECONFIG: Final = "/etc/nodeagent/kubeconfig"
SETTINGS: Final = {"node_name": NODE, "cluster": {"kubeconfig": KUBECONFIG, "source": "file"}}
# The pool of the host comes after another one, of which no node is updated.
POOLS: Final = ("first", "second")
WAITING: Final = {
    "node_name": NODE,
    "cluster": {"kubeconfig": KUBECONFIG, "source": "cluster"},
    "slots": {"pool": POOLS[1], "order": [*POOLS]},
}
CONFIG: Final = "rendered-rest"
TOGETHER: Final = 3


@contextmanager
def api_server() -> Iterator[tuple[Cluster, Path]]:
    """Yield a control plane with a Node for the host, and the directory with its socket. Raise ``Unavailable``."""
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(programs.find(), Path(directory))
        try:
            cluster.start()
            for document in documents():
                path = path_of(document)
                if cluster.admin.find(f"{path}/{document['metadata']['name']}") is None:
                    cluster.admin.create(path, document)
            cluster.node(NODE)
            with relay(Path(directory), cluster.port):
                yield cluster, Path(directory)
        finally:
            cluster.close()


def fill(cluster: Cluster, nodes: int) -> Controller:
    """Add ``nodes`` Nodes of 12 kB, of which the host has to wait for one. Return the controller of the host, which
    desires ``CONFIG``."""
    install(cluster, "fleet-order.yaml")
    with ThreadPoolExecutor(TOGETHER) as threads:
        list(threads.map(lambda first: fill_nodes(cluster, range(first, nodes, TOGETHER)), range(TOGETHER)))
    for name, pool in zip(("w0000", NODE), POOLS, strict=True):
        cluster.admin.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"nodeagent.org/pool": pool}}})
    controller = Controller(cluster, NODE)
    controller.make(CONFIG, one="1")
    controller.desire(CONFIG)
    return controller


def kubeconfig(cluster: Cluster) -> str:
    """Return credentials with everything in them: the host does not see the files of this machine."""
    document: dict[str, Any] = json.loads(cluster.kubeconfig(f"nodeagent:{NODE}", ["nodeagent"]).read_text())
    for part in (document["clusters"][0]["cluster"], document["users"][0]["user"]):
        for key in ("certificate-authority", "client-certificate", "client-key"):
            if key in part:
                part[f"{key}-data"] = base64.b64encode(Path(part.pop(key)).read_bytes()).decode()
    return json.dumps(document)
