# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nodeagent.core.self_check import SelfCheck
from nodeagent.door import Door, InstallationCheck
from nodeagent.features.fleetlock.reasons import FleetLockReason
from nodeagent.features.fleetlock.settings import FleetLockSettings
from nodeagent.settings.schema import Settings
from nodeagent.update.ports.coordination import Slots


def _slots(settings: Settings, host_id: Callable[[], str]) -> Slots | None:
    part = settings.of(FleetLockSettings)
    if not part.fleetlock:
        return None
    from nodeagent.features.fleetlock.client import FleetLock

    return FleetLock(part.fleetlock, host_id(), part.fleetlock_group, ca=part.fleetlock_ca)


async def _check(settings: Settings) -> SelfCheck:
    from nodeagent.features.fleetlock.selfcheck import check_server

    return await check_server("reach.fleetlock", settings.of(FleetLockSettings))


DOOR: Final = Door(
    title="FleetLock",
    page="usage/fleet-without-kubernetes.md",
    settings=(FleetLockSettings,),
    reasons=FleetLockReason,
    self_checks=(InstallationCheck("reach.fleetlock", _check),),
    slots=_slots,
)
