# SPDX-License-Identifier: Apache-2.0
"""The identity of a boot as one text."""

from __future__ import annotations

import pytest

from nodeagent.core.boot import identity, kernel_boot, soft_reboots
from nodeagent.report.status import Status
from nodeagent.report.status_json import status_to_dict

pytestmark = pytest.mark.finding(
    "OS: soft reboots",
    "The identity of a boot has the count of soft reboots, from every systemd, also where PID 1 is busy.",
)

KERNEL = "0d3f4c1e-6a0b-4c55-9f5f-000000000001"


@pytest.mark.parametrize("count", [0, 1, 12])
def test_both_parts_come_back(count: int) -> None:
    text = identity(KERNEL, count)
    assert (kernel_boot(text), soft_reboots(text)) == (KERNEL, count)


def test_without_a_soft_reboot_it_is_what_old_stores_have() -> None:
    assert identity(KERNEL, 0) == KERNEL
    assert soft_reboots(f"{KERNEL}+x") == 0


def test_the_status_has_the_id_of_the_kernel() -> None:
    shown = status_to_dict(Status(boot_id=identity(KERNEL, 3)), daemon="running")
    assert (shown["boot_id"], shown["soft_reboots"]) == (KERNEL, 3)
