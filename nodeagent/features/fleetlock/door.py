# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.core.self_check import SelfCheck
from nodeagent.door import Door, FleetHost, FleetSlots, InstallationCheck
from nodeagent.features.fleetlock.reasons import FleetLockReason
from nodeagent.features.fleetlock.settings import FleetLockSettings
from nodeagent.settings.schema import Settings


def _slots(host: FleetHost) -> FleetSlots | None:
    part = host.settings.of(FleetLockSettings)
    if not part.fleetlock:
        return None
    from nodeagent.features.fleetlock.client import FleetLock

    lock = FleetLock(part.fleetlock, host.host_id(), part.fleetlock_group, ca=part.fleetlock_ca)
    return FleetSlots(disrupt=lock)


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
