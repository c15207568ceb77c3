# SPDX-License-Identifier: Apache-2.0
"""The trees of containers, for the tests of all rings that need root and a Debian mirror as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.hosts.container import container_host
from integration.hosts.container.conftest import required, say
from integration.trees.base import Flavour
from integration.trees.ostree_repo import OstreeRepo

__all__ = ["say"]

HERE = Path(__file__).parent
FIRST_TIMEOUT = 1200  # seconds: the first test makes images and trees


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.host)
            item.add_marker(pytest.mark.timeout(FIRST_TIMEOUT))


@pytest.fixture(scope="session")
def ostree_repo(say: Callable[[str], None]) -> Iterator[OstreeRepo]:
    grown = required(lambda: OstreeRepo(Flavour.CONTAINER, say))
    container_host.sweep()
    yield grown
    grown.close()
