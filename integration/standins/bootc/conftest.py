# SPDX-License-Identifier: Apache-2.0
"""The hosts of `integration.hosts.ostree`, which have the stand-in at /usr/bin/bootc."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.hosts.ostree.conftest import (
    bootc_host,
    bootc_images,
    bootc_repo,
    make_bootc_host,
    publish_bootc,
    pytest_runtest_makereport,
    say,
)
from integration.trees.conftest import FIRST_TIMEOUT

__all__ = [
    "bootc_host",
    "bootc_images",
    "bootc_repo",
    "make_bootc_host",
    "publish_bootc",
    "pytest_runtest_makereport",
    "say",
]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.host)
            item.add_marker(pytest.mark.timeout(FIRST_TIMEOUT))
