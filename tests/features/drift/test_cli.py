# SPDX-License-Identifier: Apache-2.0
"""Drift in `nodeagent status`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nodeagent.features.drift import cli
from nodeagent.settings.schema import Settings

DRIFT = [{"entry": "file:/home/core/x", "why": "content differs", "since": "2026-11-21T03:00:00Z", "by": "vi"}]
NOW = datetime(2026, 11, 21, 3, 12, tzinfo=UTC)


@pytest.mark.finding(
    "users: messages that name no way out", "The hint about drift recommends no setting that this host has."
)
@pytest.mark.parametrize(
    ("on_drift", "words"),
    [("report", "let on_drift: repair overwrite it"), ("repair", "on_drift: repair leaves what needs an action")],
)
def test_the_hint_follows_the_setting(on_drift: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "valid_settings", lambda: Settings(on_drift=on_drift))
    (label, text), (_, way_out) = cli.rows(DRIFT, NOW)
    assert (label, text) == ("drift", "file:/home/core/x content differs (since 03:00:00, 12 min ago, by vi)")
    assert words in way_out
