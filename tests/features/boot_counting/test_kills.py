# SPDX-License-Identifier: Apache-2.0
"""The kill tests of OS updates and of the way back once more, with a boot loader that counts."""

from __future__ import annotations

import pytest

from tests.features.boot_counting.counting import counting
from tests.update.test_os_kills import *  # noqa: F403 - its tests
from tests.world import os_host

pytestmark = [pytest.mark.looptime, pytest.mark.long]


@pytest.fixture(autouse=True)
def _counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os_host, "GUARDS", [counting])
