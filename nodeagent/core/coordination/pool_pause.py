"""The pause of a pool: how long no node may begin after one has released its slot.

A released slot stays, without a holder and with the time of the release by the server's clock, so the pause holds for
all nodes and survives restarts. A slot that was freed without a valid time pauses the pool for as long as this agent
has seen it so. A slot that an admin deleted pauses nothing: that is how an operator ends a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.coordination.kube_time import micro_time, parse_time, seconds_time
from nodeagent.core.coordination.lease import PREFIX
from nodeagent.core.coordination.slots import NOTES, RELEASED, Object, Slot

# Seconds by which a release may be in the future: the widths of two server's clocks.
SLACK: Final = 60.0


@dataclass(frozen=True, slots=True)
class PoolPause:
    """``left`` is in seconds. ``node`` and ``since`` are those of the last release, ``until`` is the end; "" if they
    are not known."""

    left: float
    node: str = ""
    since: str = ""
    until: str = ""


def released(slot: Slot, node: str, latest: float) -> Object:
    """Return a merge patch that releases a slot. ``latest`` is an upper bound of the server's time."""
    # In a merge patch (RFC 7396), null removes a key.
    notes = {**{PREFIX + key: None for key in NOTES}, PREFIX + RELEASED: f"{micro_time(latest)} {node}"}
    # The owner is removed: the pause must outlast the Node.
    meta = {"resourceVersion": slot.lease.version, "annotations": notes, "ownerReferences": None}
    return {"metadata": meta, "spec": {"holderIdentity": None}}


def pool_pause(
    slots: Sequence[Slot], pause: float, earliest: float, latest: float, seen: Callable[[Slot], float]
) -> PoolPause | None:
    """Return the pause that ends last; None if a node may begin.

    ``earliest`` and ``latest`` are bounds of the server's time; ``seen`` returns the seconds for which this agent has
    seen the slot unchanged.
    """
    if not pause:
        return None
    found = [_of(slot, pause, earliest, latest, seen) for slot in slots if not slot.held]
    last = max(found, key=lambda one: one.left, default=None)
    return last if last is not None and last.left > 0 else None


def _of(slot: Slot, pause: float, earliest: float, latest: float, seen: Callable[[Slot], float]) -> PoolPause:
    time, _, node = slot.lease.notes.get(RELEASED, "").partition(" ")
    at = parse_time(time)
    # No agent writes a time ahead of the server's, so one of those would keep the pool paused for no cause.
    if at is None or at > latest + SLACK:
        return PoolPause(pause - seen(slot))
    return PoolPause(at + pause - earliest, node, seconds_time(at), seconds_time(at + pause))
