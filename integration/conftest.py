# SPDX-License-Identifier: Apache-2.0
"""Fixtures that the rings share with ring 1, and the order of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.guards import pytest_collection_finish, pytest_sessionstart
from tests.support.skips import pytest_terminal_summary

__all__ = ["pytest_collection_finish", "pytest_sessionstart", "pytest_terminal_summary"]


PACKAGE = Path(__file__).parent / "package"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the package first, which is built for them while others make the image of the hosts; then the slow ones,
    or all but one worker would wait for the worker that got them last."""
    items.sort(key=lambda item: (item.path.parent != PACKAGE, item.get_closest_marker("slow") is None))
