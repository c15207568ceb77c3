# SPDX-License-Identifier: Apache-2.0
"""A percentage of a pool as the number of its slots.

The size of a pool is in its slots, so that nodes which wait read no others to know how many slots they may try. It is a
hint: the holder of a slot counts the nodes of its pool itself before it disrupts anything, and writes what it found.
Without a size there is one slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.coordination.kube_objects import MachineConfigPool, Node
from nodeagent.core.coordination.kube_time import micro_time, parse_time
from nodeagent.features.slots.decide.pool import SIZE, SLACK, Slot
from nodeagent.features.slots.decide.rollout import pool_of

# The name of a pool in the size of one that has none.
NO_POOL: Final = "-"
DIGITS: Final = 6


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
