# SPDX-License-Identifier: Apache-2.0
"""Tests of updates see a failed assertion of a fake, which the agent would take for a bug of its own."""

from __future__ import annotations

import pytest

from nodeagent.agent import loop
from nodeagent.errors import Terminal
from nodeagent.update import machine
from nodeagent.update.ports.host import Reporter
from nodeagent.update.stages import failure


@pytest.fixture(autouse=True)
def failed_assertions_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(reporter: Reporter, error: Exception, where: str) -> Terminal:
        if type(error) is AssertionError:  # a subclass is for tests of what the agent does with one
            raise error
        return failure.bug(reporter, error, where)

    for module in (machine, loop):
        monkeypatch.setattr(module, "bug", bug)
