# SPDX-License-Identifier: Apache-2.0
"""Two limits of a pool that the holder of a slot checks itself: one zone at a time, and a percentage of the pool.

A slot has the zone of its holder, so the list of slots shows which zone has its turn. Nodes of two zones may take two
free slots at the same moment. So each reads the slots again after it has taken one, before anything is disrupted, and
gives its slot back if it finds another zone: of two that have taken one, the later one finds the other. Nodes without
the label are a zone of their own.

The size of a pool is in its slots, so that nodes which wait read no others to know how many slots they may try. It is a
hint: the holder of a slot counts the nodes of its pool itself before it disrupts anything, and writes what it found.
Without a size there is one slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.coordination.annotations import clean
from nodeagent.core.coordination.kube_objects import MachineConfigPool, Node
from nodeagent.core.coordination.kube_time import micro_time, parse_time
from nodeagent.core.enumerated import enumerated
from nodeagent.errors import OutOfTurn
from nodeagent.features.slots.decide.pool import SIZE, SLACK, ZONE, Slot
from nodeagent.features.slots.decide.rollout import pool_of
from nodeagent.features.slots.decide.turn import UNCHECKED
from nodeagent.features.slots.reasons import SlotReason

# Characters of the value of a label.
LONGEST_VALUE: Final = 63
# The name of a pool in the size of one that has none.
NO_POOL: Final = "-"
DIGITS: Final = 6


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
    return f"zone {clean(zone[:LONGEST_VALUE])}" if zone else "no zone"


@dataclass(frozen=True, slots=True)
class PoolSize:
    """``at`` is by the server's clock; ``pool`` is None for nodes that are in no pool."""

    at: float
    pool: str | None
    nodes: int

    @property
    def text(self) -> str:
        return f"{micro_time(self.at)} {self.pool or NO_POOL} {self.nodes}"


def read_size(text: str) -> PoolSize | None:
    """Return None for a text of another form."""
    time, _, rest = text.partition(" ")
    pool, _, nodes = rest.partition(" ")
    at = parse_time(time)
    if at is None or not pool or not (nodes.isascii() and nodes.isdigit() and len(nodes) <= DIGITS):
        return None
    return PoolSize(at, None if pool == NO_POOL else pool, int(nodes))


def newest_size(slots: Sequence[Slot], pool: str | None, latest: float) -> PoolSize | None:
    """Return the size of ``pool`` in its slots; None without one. ``latest`` is an upper bound of the server's time."""
    written = [read_size(slot.lease.notes.get(SIZE, "")) for slot in slots]
    # No agent writes a time ahead of the server's, and such a size would never be replaced.
    sizes = [size for size in written if size is not None and size.pool == pool and size.at <= latest + SLACK]
    return max(sizes, key=lambda size: size.at, default=None)


def size_of(nodes: Sequence[Node], pools: Sequence[MachineConfigPool], pool: str | None) -> int:
    """Return the number of nodes of ``pool``; 0 for None."""
    return 0 if pool is None else sum(pool_of(node, pools) == pool for node in nodes)


def limit_of(percent: int, nodes: int) -> int:
    """Return the number of slots: rounded down, and at least one, as a MachineConfigPool rounds ``maxUnavailable``."""
    return max(1, nodes * percent // 100)
