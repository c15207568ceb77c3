# SPDX-License-Identifier: Apache-2.0
"""One zone of a pool at a time. A slot has the zone of its holder, so the list of slots shows which zone has its turn.

Nodes of two zones may take two free slots at the same moment. So each reads the slots again after it has taken one,
before anything is disrupted, and gives its slot back if it finds another zone: of two that have taken one, the later
one finds the other. Nodes without the label are a zone of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nodeagent.core.coordination.annotations import clean
from nodeagent.core.coordination.kube_objects import Node
from nodeagent.core.enumerated import enumerated
from nodeagent.errors import OutOfTurn
from nodeagent.features.slots.decide.pool import ZONE, Slot
from nodeagent.features.slots.decide.turn import UNCHECKED
from nodeagent.features.slots.reasons import SlotReason

# Characters of the value of a label.
LONGEST: Final = 63


def zone_of(node: Node, label: str) -> str:
    return (node["metadata"].get("labels") or {}).get(label, "")


def zone_of_slot(slot: Slot) -> str:
    return slot.lease.notes.get(ZONE, "")


def other_zones(slots: Sequence[Slot], zone: str) -> Sequence[Slot]:
    """Return the held slots of other zones."""
    return [slot for slot in slots if slot.held and zone_of_slot(slot) != zone]


def goes_first(slot: Slot, others: Sequence[Slot]) -> bool:
    """Return whether ``others`` give their slots back for ``slot``: all of them were taken just now, and of slots that
    were taken at the same moment the lowest one stays."""
    return all(UNCHECKED in other.lease.notes and other.index > slot.index for other in others)


def zone_refusal(pool: str, zone: str, others: Sequence[Slot]) -> OutOfTurn:
    zones = enumerated(sorted({_words(zone_of_slot(slot)) for slot in others}))
    who = enumerated(clean(slot.lease.identity.partition("/")[0]) for slot in others)
    message = f"pool {pool} disrupts nodes in {zones}, and this one is in {_words(zone)}: {who}"
    return OutOfTurn(message, reason=SlotReason.ZONE_HELD)


def _words(zone: str) -> str:
    return f"zone {clean(zone[:LONGEST])}" if zone else "no zone"
