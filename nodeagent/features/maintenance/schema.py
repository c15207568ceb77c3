# SPDX-License-Identifier: Apache-2.0
"""The JSON of the feature, see ``nodeagent.contract``."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from nodeagent.contract.keys import Keys, about
from nodeagent.contract.shared import Lease
from nodeagent.features.maintenance.decide import MaintenanceState


class Maintenance(Keys):
    id: Annotated[str, about("id of the request")]
    state: Annotated[MaintenanceState, about("how far it is")]
    requester: Annotated[str, about("who requested it")]
    reason: Annotated[str, about("why")]
    since: Annotated[str, about("when it began, or was requested if it has not begun; RFC 3339")]
    until: Annotated[str, about("its end; empty for one until it is stopped")]
    drain: Annotated[bool, about("whether the node is to be drained")]
    drained: Annotated[str, about("when the node was drained; empty if it was not")]
    power_off: Annotated[bool, about("whether the host is to be powered off")]
    message: Annotated[str, about("what it waits for, or a problem; empty for none")]


class Answer(Keys):
    schema: Annotated[Literal["nodeagent/maintenance/v1"], about("the schema of this object")]
    active: Annotated[bool, about("whether updates and reboots are blocked now")]
    lease: Annotated[Lease | None, about("the lease, if the maintenance holds it")]
    maintenance: Annotated[Maintenance | None, about("the maintenance; null without one")]


STATUS: Final = {"maintenance": Annotated[Maintenance | None, about("the maintenance; null without one")]}
ANSWERS: Final = {"nodeagent/maintenance/v1": Answer}
