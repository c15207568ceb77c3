# SPDX-License-Identifier: Apache-2.0
"""Whether the server answers. The request takes no slot."""

from __future__ import annotations

from nodeagent.core.self_check import NotRead, ReachFacts, SelfCheck, reach_check
from nodeagent.features.fleetlock.settings import FleetLockSettings
from nodeagent.host.reach import reach


async def check_server(name: str, settings: FleetLockSettings) -> SelfCheck:
    if not settings.fleetlock:
        return reach_check(name, NotRead("not configured"))
    return reach_check(name, await reach_fleetlock(settings.fleetlock, settings.fleetlock_ca))


async def reach_fleetlock(address: str, ca: str) -> ReachFacts:
    """Any answer will do: the protocol has no call that neither takes nor releases a slot."""
    return await reach(address, address, ca=ca, remedy="correct slots.fleetlock_ca")
