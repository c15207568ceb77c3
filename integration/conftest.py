"""What the rings share with ring 1, and the order in which they run."""

from __future__ import annotations

import pytest

from tests.conftest import pytest_collection_finish, pytest_sessionstart

__all__ = ["pytest_collection_finish", "pytest_sessionstart"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first, or all but one worker would wait for whoever got them last."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
