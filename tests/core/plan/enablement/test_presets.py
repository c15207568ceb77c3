# SPDX-License-Identifier: Apache-2.0
"""What the lines of presets decide about a unit, as systemd.preset(5) says."""

from __future__ import annotations

import pytest

from nodeagent.core.plan.enablement.presets import Preset, preset_of


@pytest.mark.parametrize(
    ("unit", "line", "preset", "instances"),
    [
        ("a.service", "disable a.service", Preset.DISABLE, []),
        ("a.service", "disable a.service b", Preset.DISABLE, []),
        ("a@.service", "enable a@.service x y", Preset.ENABLE, ["a@x.service", "a@y.service"]),
        ("a@x.service", "disable a@.service x", Preset.DISABLE, []),
        ("a@z.service", "disable a@.service x", Preset.ENABLE, []),
        ("a@z.service", "disable a@*.service", Preset.DISABLE, []),
    ],
)
def test_a_line(unit: str, line: str, preset: Preset, instances: list[str]) -> None:
    decided, named = preset_of(unit, [line])
    assert (decided, list(named)) == (preset, instances)
