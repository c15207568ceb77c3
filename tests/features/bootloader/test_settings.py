# SPDX-License-Identifier: Apache-2.0
"""The settings of the bootloader that contradict each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.settings.consistency import check_consistency
from nodeagent.settings.load import load


def test_boot_sectors_are_updated_only_where_something_is(tmp_path: Path) -> None:
    file = tmp_path / "50-x.yaml"
    file.write_text("bootloader: {bios: true}\n")
    found = load([tmp_path])
    with pytest.raises(InvalidInput) as raised:
        check_consistency(found.settings, found.origins)
    (problem,) = raised.value.problems
    assert (problem.path, "bootloader.bios needs" in problem.message) == (f"{file}:1", True)
    file.write_text("bootloader: {update: after-boot, bios: true}\n")
    found = load([tmp_path])
    check_consistency(found.settings, found.origins)
