"""Fixtures of ostree hosts: the trees once, a fresh host for every test that asks for one.

`ostree_host` is a host with A booted and nothing of nodeagent in it; the fixtures of `integration.host` that build the
package and keep logs serve here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.host import machine
from integration.host.conftest import finish, package, pytest_runtest_makereport, say, unavailable
from integration.host.errors import Unavailable
from integration.ostreehost.machine import OstreeHost
from integration.trees.base import Flavour
from integration.trees.forest import Commit, Forest
from integration.trees.tree import A, B, Tree

__all__ = ["package", "pytest_runtest_makereport", "say"]

HERE = Path(__file__).parent
OstreeHostMaker = Callable[..., OstreeHost]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.host)


@pytest.fixture(scope="session")
def forest(say: Callable[[str], None]) -> Iterator[Forest]:
    try:
        grown = Forest(Flavour.CONTAINER, say)
    except Unavailable as error:
        unavailable(error)
    machine.sweep()
    yield grown
    grown.close()


@pytest.fixture
def make_ostree_host(request: pytest.FixtureRequest, forest: Forest) -> Iterator[OstreeHostMaker]:
    """Makes hosts, off, with a tree deployed (A if none is given) and any arguments of OstreeHost."""
    hosts: list[OstreeHost] = []

    def make(tree: Tree = A, **options: Any) -> OstreeHost:
        hosts.append(OstreeHost(forest, forest.commit(tree), **options))
        return hosts[-1]

    yield make
    for host in hosts:
        finish(host, request.node)


@pytest.fixture
def ostree_host(make_ostree_host: OstreeHostMaker) -> OstreeHost:
    """A host with A booted."""
    host = make_ostree_host()
    host.boot()
    return host


@pytest.fixture(scope="session")
def commit_a(forest: Forest) -> Commit:
    return forest.commit(A)


@pytest.fixture(scope="session")
def commit_b(forest: Forest) -> Commit:
    return forest.commit(B)
