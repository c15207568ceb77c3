# SPDX-License-Identifier: Apache-2.0
"""What a plan says about the boots of the new OS."""

from __future__ import annotations

import json

import pytest

from nodeagent.cli._features import lines_after
from tests.agent.test_api import api
from tests.features.boot_counting.counting import counting
from tests.world.os_host import NEW, at_old, on


@pytest.mark.looptime
@pytest.mark.parametrize(("counts", "by"), [(True, "grub"), (False, "")])
async def test_the_answer_says_who_counts_the_boots(counts: bool, by: str) -> None:
    host = await at_old()
    host.guards = [counting(host.world)]
    host.world.counts = counts
    found = json.loads(await api(host).plan(host.add(NEW)))["boot_count"]
    assert (found["by"], bool(found["why"]), found["greenboot"]) == (by, not counts, False)
    answer = json.loads(await api(host).plan(host.add(on("a", "files", {"/etc/app/x": "2"}))))
    assert "boot_count" not in answer, "the OS stays"


@pytest.mark.parametrize(
    ("by", "why", "greenboot", "line"),
    [
        ("grub", "", True, "boots of the new OS: counted by GRUB; greenboot checks each boot"),
        ("systemd-boot", "", False, "boots of the new OS: counted by systemd-boot"),
        (
            "",
            "/boot/grub2/grub.cfg does not count",
            False,
            "boots of the new OS: not counted: /boot/grub2",
        ),
    ],
)
def test_a_plan_says_who_counts_the_boots(by: str, why: str, greenboot: bool, line: str) -> None:
    answer = {"boot_count": {"by": by, "why": why, "greenboot": greenboot}}
    (found,) = lines_after("the reboot", answer)
    assert found.startswith(line)
    assert not [*lines_after("the reboot", {})]
