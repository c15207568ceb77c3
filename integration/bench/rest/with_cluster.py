# SPDX-License-Identifier: Apache-2.0
"""An API server for the host of the benchmark: with its credentials and the rights of packaging/kubernetes."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from integration.cluster import programs
from integration.cluster.cluster import Cluster
from integration.cluster.tcp_proxy import relay
from integration.cluster.test_rights import documents, path_of

NODE: Final = "rest"
KUBECONFIG: Final = "/etc/nodeagent/kubeconfig"
SETTINGS: Final = {"node_name": NODE, "cluster": {"kubeconfig": KUBECONFIG, "source": "file"}}


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


def kubeconfig(cluster: Cluster) -> str:
    """Return credentials with everything in them: the host does not see the files of this machine."""
    document: dict[str, Any] = json.loads(cluster.kubeconfig(f"nodeagent:{NODE}", ["nodeagent"]).read_text())
    for part in (document["clusters"][0]["cluster"], document["users"][0]["user"]):
        for key in ("certificate-authority", "client-certificate", "client-key"):
            if key in part:
                part[f"{key}-data"] = base64.b64encode(Path(part.pop(key)).read_bytes()).decode()
    return json.dumps(document)
