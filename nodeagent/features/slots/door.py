# SPDX-License-Identifier: Apache-2.0
"""What the feature declares."""

from __future__ import annotations

from typing import Final

from nodeagent.door import Door, FleetHost, FleetSlots
from nodeagent.features.slots.reasons import SlotReason
from nodeagent.features.slots.settings import SlotSettings


def _slots(host: FleetHost) -> FleetSlots | None:
    part = host.settings.of(SlotSettings)
    if not part.pool or host.api is None:
        return None
    from nodeagent.features.slots.leases import slots_of

    return slots_of(host, host.api, part)


DOOR: Final = Door(
    title="Slots",
    page="usage/slots.md",
    settings=(SlotSettings,),
    reasons=SlotReason,
    slots=_slots,
)
