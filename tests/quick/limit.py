# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that skips the tests for which a run has no time: ``-p tests.quick.limit --seconds 15``."""

from __future__ import annotations

import time

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seconds", type=float, default=15.0, help="begin no test later than this after the first")


END = pytest.StashKey[float]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin to count here: the first test runs, however long the imports took."""
    session.config.stash[END] = time.monotonic() + session.config.getoption("--seconds")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > item.config.stash[END] and item is not item.session.items[0]:
        pytest.skip("no time left for this in make quick; make unit runs it")
