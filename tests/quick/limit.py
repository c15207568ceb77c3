# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that skips the tests for which a run has no time: ``-p tests.quick.limit --seconds 15``."""

from __future__ import annotations

import time

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seconds", type=float, default=15.0, help="begin no test after this many seconds")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[END] = time.monotonic() + config.getoption("--seconds")


END = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > item.config.stash[END]:
        pytest.skip("no time left for this in make quick; make unit runs it")
