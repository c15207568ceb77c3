# SPDX-License-Identifier: Apache-2.0
"""A control plane for nodes outside of pytest: for the benchmark and the demo."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from integration.cluster import programs as program_cache
from integration.cluster.cluster import Cluster
from integration.cluster.tcp_proxy import relay
from integration.cluster.test_rights import documents, path_of
from integration.hosts.node.controllers import Controllers
from integration.hosts.node.node_programs import NodePrograms


@contextlib.contextmanager
def control_plane(programs: NodePrograms) -> Iterator[tuple[Cluster, Path]]:
    """Have an API server with the rights of nodeagent, controllers, and the directory of its relay."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = Cluster(program_cache.find(), directory)
        stack.callback(cluster.close)
        cluster.start()
        for document in documents():
            if cluster.admin.find(f"{path_of(document)}/{document['metadata']['name']}") is None:
                cluster.admin.create(path_of(document), document)
        controllers = Controllers(cluster, programs)
        stack.callback(controllers.close)
        controllers.start()
        inside = directory / "relay"
        inside.mkdir()
        stack.enter_context(relay(inside, cluster.port))
        yield cluster, inside
