"""Tests of the agent see a failed assertion of a fake, which the agent would take for a bug of its own."""

from __future__ import annotations

import pytest

from nodeagent.agent import loop
from nodeagent.agent.update import executor, outcomes
from nodeagent.errors import Terminal


@pytest.fixture(autouse=True)
def failed_assertions_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(error: Exception, where: str) -> Terminal:
        if type(error) is AssertionError:  # a subclass is for tests of what the agent does with one
            raise error
        return outcomes.bug(error, where)

    for module in (executor, loop):
        monkeypatch.setattr(module, "bug", bug)
