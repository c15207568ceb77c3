# SPDX-License-Identifier: Apache-2.0
"""One browser for all tests of this directory, and one root directory with Cockpit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.browser import browser, cockpit
from integration.browser.browser import Page
from integration.hosts.container.conftest import unavailable
from integration.hosts.errors import Unavailable
from nodeagent.host import boot
from tests.agent.whole_daemon import WholeDaemon
from tests.support.fixtures import PrivateBus, private_bus

__all__ = ["private_bus"]


@pytest.fixture(scope="session")
def browser_tab() -> Iterator[Page]:
    try:
        with browser.opened(print) as page:
            yield page
    except Unavailable as error:
        unavailable(error)


@pytest.fixture
def tab(browser_tab: Page) -> Page:
    """The tab of the browser, without what the pages of an earlier test logged."""
    browser_tab.log()
    return browser_tab


@pytest.fixture(scope="session")
def cockpit_root() -> Iterator[Path]:
    try:
        with cockpit.unpacked(print) as root:
            yield root
    except Unavailable as error:
        unavailable(error)


@pytest.fixture
def daemon(tmp_path: Path, private_bus: PrivateBus, monkeypatch: pytest.MonkeyPatch) -> WholeDaemon:
    """The whole daemon on a private bus, not started. Its configs must have no files: it would write them here."""
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", private_bus.address)
    assert boot.identify.__kwdefaults__ is not None
    # No systemd answers on this bus.
    monkeypatch.setitem(boot.identify.__kwdefaults__, "pause", 0)
    # The session of a user without rights must reach the bus.
    tmp_path.chmod(0o755)
    return WholeDaemon(tmp_path, private_bus.address)
