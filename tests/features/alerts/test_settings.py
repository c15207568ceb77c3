# SPDX-License-Identifier: Apache-2.0
"""The settings of the alerts that contradict each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.load import load


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alerts: {url: 'http://a', token_file: /t}\n", "with https"),
        ("alerts: {ca: /c}\n", "alerts.ca needs"),
        ("alerts: {url: 'https://a', ca: /c, token_file: /t}\n", ""),
    ],
)
def test_a_token_and_an_authority_need_https(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "50-x.yaml").write_text(text)
    found = load([tmp_path])
    if not words:
        check_consistency(found.settings, found.origins)
        return
    with pytest.raises(InvalidInput) as raised:
        check_consistency(found.settings, found.origins)
    problems = [problem for problem in raised.value.problems if words in problem.message]
    assert [problem.path for problem in problems] == [f"{tmp_path}/50-x.yaml:1"]
