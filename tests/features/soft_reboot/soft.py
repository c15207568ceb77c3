# SPDX-License-Identifier: Apache-2.0
"""The guard of the feature, for the host in memory."""

from __future__ import annotations

from typing import Literal

from nodeagent.features.soft_reboot.choice import SoftRebootGuard, SoftReboots
from nodeagent.features.soft_reboot.settings import SoftRebootSettings
from tests.world import FakePower, LocalService, World


def guard_of(world: World, soft: Literal["never", "fallback", "auto"]) -> SoftRebootGuard:
    async def check_host(*, same_system: bool) -> None:
        await LocalService(FakePower(world), world, "systemd-logind").check_soft_reboot(same_system=same_system)

    return SoftRebootGuard(SoftReboots(check_host, SoftRebootSettings(soft=soft)))
