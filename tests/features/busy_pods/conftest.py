# SPDX-License-Identifier: Apache-2.0
"""The pauses between attempts are for servers, not for tests."""

from __future__ import annotations

import pytest

from nodeagent.kube import client


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.01)
