"""Fixtures of the cluster ring: one control plane for all tests, which name their own nodes and namespaces.

Where it cannot run the ring is skipped with the reason; with CI set in the environment that is a failure.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from integration.cluster import programs
from integration.cluster.cluster import Cluster
from integration.cluster.programs import Binaries
from integration.hosts.errors import Unavailable

HERE = Path(__file__).parent
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    try:
        return programs.find()
    except Unavailable as error:
        reason = f"the cluster ring cannot run here: {error}"
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def older_etcd(binaries: Binaries) -> Binaries:
    """The same programs with an etcd of the previous minor release."""
    try:
        return replace(binaries, etcd=programs.find_older_etcd())
    except Unavailable as error:
        reason = f"there is no older etcd here: {error}"
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


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
