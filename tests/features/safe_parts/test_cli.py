# SPDX-License-Identifier: Apache-2.0
"""The lines of a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodeagent.cli.main import main
from tests.cli import test_changes, test_plan
from tests.support.golden import Golden


def test_four_changes_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = test_changes.plan_of(test_changes.FOUR, tmp_path, monkeypatch)
    assert main([*words, "--diff"]) == 0
    golden("changes", "four at once", capsys.readouterr().out)


def test_the_parts_of_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(test_plan.plan_of("user-policy", tmp_path)) == 0
    assert json.loads(capsys.readouterr().out)["parts"] == {
        "safe": ["unit:foo.service"],
        "waits": [{"change": "file:/etc/chrony.conf", "for": "Drain, Restart chronyd.service"}],
    }
