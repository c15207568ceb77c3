"""One browser for all tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.browser import browser
from integration.browser.browser import Page
from integration.hosts.container.conftest import unavailable
from integration.hosts.errors import Unavailable


@pytest.fixture(scope="session")
def tab() -> Iterator[Page]:
    try:
        with browser.opened(print) as page:
            yield page
    except Unavailable as error:
        unavailable(error)
