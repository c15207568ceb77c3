# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the cluster ring: one control plane for all tests, which name their own nodes and namespaces.

Where it cannot run the ring is skipped with the reason; with CI set in the environment that is a failure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from integration.cluster import programs
from integration.cluster.cluster import Cluster
from integration.cluster.programs import Binaries
from integration.hosts.container.conftest import required

HERE = Path(__file__).parent
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    return required(programs.find, "the cluster ring cannot run here")


@pytest.fixture(scope="session")
def older_etcd(binaries: Binaries) -> Binaries:
    """The same programs with an etcd of the previous minor release."""
    return replace(binaries, etcd=required(programs.find_older_etcd, "there is no older etcd here"))


@pytest.fixture(scope="session")
def kubectl() -> Path:
    """The real `kubectl drain`."""
    return required(lambda: programs.find_peer("kubectl-drain"), "there is no kubectl here")


@pytest.fixture(scope="session")
def control_plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(binaries, tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def cluster(control_plane: Cluster) -> Iterator[Cluster]:
    """The control plane, and it goes on whatever the test did to it."""
    yield control_plane
    control_plane.resume()


@pytest.fixture
def make_node(cluster: Cluster) -> Callable[[], str]:
    """Makes Node objects with names that no other test has."""

    def make() -> str:
        name = f"node-{next(_numbers)}"
        cluster.node(name)
        return name

    return make


@pytest.fixture
def node(make_node: Callable[[], str]) -> str:
    return make_node()
