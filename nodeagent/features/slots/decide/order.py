# SPDX-License-Identifier: Apache-2.0
"""Whether it is the turn of a node in the rollout: its pool has not halted, and the pools before it are complete.

The facts are the annotations that each agent writes to its Node (``core/coordination/annotations.py``). A node that
does not report its state is not known to be well: it counts as degraded, and its pool as not complete.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.core.coordination.annotations import DaemonState
from nodeagent.core.coordination.gates import Gate
from nodeagent.core.enumerated import enumerated
from nodeagent.features.slots.decide.rollout import ClusterObjects, NodeProgress, NodeRollout, PoolRollout, rollout_of
from nodeagent.features.slots.reasons import SlotReason


@dataclass(frozen=True, slots=True)
class RolloutOrder:
    """``pools`` are names of pools, the first one first; a pool that is not listed comes after them. ``halt_degraded``
    is the number of degraded nodes with which a pool halts; 0 for none."""

    pools: tuple[str, ...] = ()
    halt_degraded: int = 0

    @property
    def given(self) -> bool:
        return bool(self.pools or self.halt_degraded)


def turn_gate(objects: ClusterObjects, node: str, order: RolloutOrder) -> Gate | None:
    """Return why ``node`` may not begin an update; None if it may. A halt has precedence."""
    if not order.given:
        return None
    pools = {pool.name: pool for pool in rollout_of(objects, silent=True).pools}
    own = next((pool for pool in pools.values() if any(member.name == node for member in pool.members)), None)
    if own is None:
        return Gate(SlotReason.POOL_ORDER, f"node {node} is in no pool of the cluster, so its turn is not known")
    if order.halt_degraded and (gate := _halt(own, node, order.halt_degraded)) is not None:
        return gate
    before = order.pools[: order.pools.index(own.name)] if own.name in order.pools else order.pools
    for name in before:
        if (obstacle := _incomplete(pools.get(name))) is not None:
            message = f"pool {name} is updated before pool {own.name}, and is not complete: {obstacle}"
            return Gate(SlotReason.POOL_ORDER, message)
    return None


def _halt(pool: PoolRollout, node: str, limit: int) -> Gate | None:
    # Its own state does not count: the config that it is about to apply may be the repair.
    unwell = [member for member in pool.members if member.name != node and not _is_well(member)]
    if len(unwell) < limit:
        return None
    names = enumerated(f"{member.name} ({_state(member)})" for member in unwell)
    message = f"pool {pool.name} halts at {limit} degraded nodes, and has {len(unwell)}: {names}"
    return Gate(SlotReason.POOL_HALTED, message)


def _is_well(member: NodeRollout) -> bool:
    return member.state in (DaemonState.WORKING, DaemonState.DONE) and member.progress is not NodeProgress.DEGRADED


def _state(member: NodeRollout) -> str:
    if member.progress is NodeProgress.DEGRADED:
        return member.reason.partition(":")[0] or str(member.progress)
    return str(member.progress) if _is_well(member) else "reports no state"


def _incomplete(pool: PoolRollout | None) -> str | None:
    if pool is None:
        # A misspelt name must not let the rollout pass by.
        return "no node is in it"
    if pool.complete:
        return None
    left = [member for member in pool.members if member.progress is not NodeProgress.UPDATED]
    nodes = [enumerated(f"{member.name} ({_state(member)})" for member in left)] if left else []
    return "; ".join([*pool.troubles, *nodes])
