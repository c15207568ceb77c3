# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the nodes: a control plane and one node for all tests of a session, and the programs that both need.

Where they cannot run the tests are skipped with the reason; with CI set in the environment that is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from integration.cluster.cluster import Cluster
from integration.cluster.conftest import binaries, control_plane, kubectl
from integration.cluster.tcp_proxy import relay
from integration.cluster.test_rights import installed
from integration.hosts import nodeagent_client as agent
from integration.hosts.container import container_host
from integration.hosts.container.conftest import finish, package, pytest_runtest_makereport, required, say
from integration.hosts.container.image import Image
from integration.hosts.container.package import installed_image
from integration.hosts.node.controllers import Controllers
from integration.hosts.node.node_host import NODEAGENT_KUBECONFIG, NodeHost, kubeconfig
from integration.hosts.node.node_image import node_image
from integration.hosts.node.node_programs import NodePrograms

__all__ = ["binaries", "control_plane", "installed", "kubectl", "package", "pytest_runtest_makereport", "say"]

HERE = Path(__file__).parent
NodeMaker = Callable[..., NodeHost]

# On a busy machine a kubelet needs many seconds until it serves, or ends because it cannot.
PATIENT: Mapping[str, Mapping[str, float]] = {"actions": {"timeout": 45, "settle": 1.5}, "verify": {"timeout": 45}}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.node)


@pytest.fixture(scope="session")
def programs() -> Iterator[NodePrograms]:
    found = required(NodePrograms.find)
    yield found
    found.close()


@pytest.fixture(scope="session")
def image(say: Callable[[str], None]) -> Iterator[Image]:
    """The image of a node, without nodeagent."""
    built = required(lambda: node_image(say))
    container_host.sweep()
    yield built
    built.close()


@pytest.fixture(scope="session")
def agent_image(image: Image, package: Path) -> Iterator[Image]:
    """The image of a node with the package installed and the agent's unit enabled."""
    derived = installed_image(image, package)
    yield derived
    derived.layers[-1].lock.close()


@pytest.fixture(scope="session")
def api_relay(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the socket through which hosts reach the API server."""
    directory = tmp_path_factory.mktemp("relay")
    with relay(directory, control_plane.port):
        yield directory


@pytest.fixture
def make_node(
    request: pytest.FixtureRequest,
    image: Image,
    programs: NodePrograms,
    control_plane: Cluster,
    api_relay: Path,
) -> Iterator[NodeMaker]:
    """Makes nodes of the control plane, off, by their names; all are closed after the test."""
    nodes: list[NodeHost] = []

    def make(name: str, other: Image | None = None, **options: str) -> NodeHost:
        nodes.append(NodeHost(other or image, programs, name, control_plane, api_relay, **options))
        return nodes[-1]

    yield make
    for node in nodes:
        finish(node, request.node)
        control_plane.admin.delete(node.path)


@pytest.fixture(scope="session")
def controllers(control_plane: Cluster, programs: NodePrograms) -> Iterator[Controllers]:
    """The scheduler and the controllers of the control plane."""
    made = Controllers(control_plane, programs)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def make_agent_node(make_node: NodeMaker, agent_image: Image, installed: Cluster) -> NodeMaker:
    """Makes nodes with the agent and its rights, up and Ready. `settings` go over PATIENT and agent.FAST."""

    def make(name: str, settings: Mapping[str, Any] | None = None, **options: str) -> NodeHost:
        node = make_node(name, agent_image, **options)
        node.write(NODEAGENT_KUBECONFIG, kubeconfig(installed, f"nodeagent:{name}", ["nodeagent"]))
        cluster = {"node_name": name, "cluster": {"kubeconfig": NODEAGENT_KUBECONFIG}}
        given = dict(settings or {})
        patient = {key: {**value, **given.pop(key, {})} for key, value in PATIENT.items()}
        agent.settings(node, {**cluster, **patient, **given})
        node.boot()
        node.wait_ready()
        agent.wait_daemon(node)
        return node

    return make
