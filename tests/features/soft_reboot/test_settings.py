# SPDX-License-Identifier: Apache-2.0
"""The setting that contradicts another."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.load import load


def test_a_soft_reboot_needs_reboots(tmp_path: Path) -> None:
    file = tmp_path / "50-x.yaml"
    file.write_text("reboot: {allow: false, soft: auto}\n")
    found = load([tmp_path])
    with pytest.raises(InvalidInput) as raised:
        check_consistency(found.settings, found.origins)
    (problem,) = raised.value.problems
    assert (problem.path, "needs reboot.allow" in problem.message) == (f"{file}:1", True)
    file.write_text("reboot: {soft: auto}\n")
    found = load([tmp_path])
    check_consistency(found.settings, found.origins)
