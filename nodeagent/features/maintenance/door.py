# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nodeagent.door import Base, BusMethod, Caller, Door, Feature
from nodeagent.features.maintenance.reasons import MaintenanceReason
from nodeagent.features.maintenance.request import further_actions, request_of
from nodeagent.features.maintenance.view import STATUS, VIEWS

START: Final = BusMethod(
    name="StartMaintenance",
    takes="sa{sv}",
    arguments=("reason", "options", "status"),
    action="maintenance",
    also=further_actions,
    actions="maintenance, and power-off for `power_off`",
    about="Options: `requester` `s`, `seconds` `t` (0: until stopped), `drain` `b`, `power_off` `b`, `wait` `b`; "
    "others are refused.",
)
STOP: Final = BusMethod(name="StopMaintenance", gives="", action="maintenance")


def _open(base: Base) -> Feature:
    from nodeagent.features.maintenance.manager import MaintenanceManager

    manager = MaintenanceManager(base.ports, base.store, base.reporter, limits=base.policy, on_release=base.look_again)

    async def start(caller: Caller, values: Sequence[Any]) -> str:
        await manager.start(caller.name, request_of(*values))
        # With the lease that was acquired, which the client shows.
        return base.status()

    async def stop(caller: Caller, _values: Sequence[Any]) -> str:
        await manager.stop(caller.name)
        return ""

    return Feature(
        # It continues from the store, also after a restart.
        beside=[("the maintenance", manager.run)],
        # Before the loop: otherwise an update could take the lease that a stored maintenance waits for.
        at_start=[("maintenance", manager.load)],
        calls={START.name: start, STOP.name: stop},
    )


DOOR: Final = Door(
    title="Maintenance",
    page="usage/maintenance.md",
    reasons=MaintenanceReason,
    events=VIEWS,
    status=STATUS,
    methods=(START, STOP),
    open=_open,
)
