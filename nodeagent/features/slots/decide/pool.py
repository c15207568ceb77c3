# SPDX-License-Identifier: Apache-2.0
"""Slots of a pool: how many of its nodes may do the same at once. Each slot is a Lease, and their names are the count.

Slot ``i`` of ``n`` is the Lease ``slot-<kind>-<pool>-<i>``: two nodes cannot have the same name, so no more than ``n``
have one at all. A slot does not expire. A node that failed half-way keeps it, so that a bad update does not spread to
the fleet; an admin deletes the Lease after the repair. A slot of a deleted Node is deleted with it, by its owner
reference. If ``n`` is reduced, the slots that are held above it still count.

The pause of a pool is how long no node may begin after one has released its slot. A released slot stays, without a
holder and with the time of the release by the server's clock, so the pause holds for all nodes and survives restarts. A
slot that was freed without a valid time pauses the pool for as long as this agent has seen it so. A slot that an admin
deleted pauses nothing: that is how an operator ends a pause. The time of the last release stays while the slot is held.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from nodeagent.core.coordination.kube_objects import LeaseObject
from nodeagent.core.coordination.kube_time import micro_time, parse_time, seconds_time
from nodeagent.core.coordination.lease import PREFIX, Claim, NodeLease, notes_of, owner_of, read_lease

Object = dict[str, Any]
# Annotations of a slot: those of its holder (its zone: ``limits.py``), the time and the node of its last release
# (``pool_pause``), why it was released before anything was disrupted (``turn.py``), and how many nodes the pool has
# (``limits.py``).
ZONE: Final = "zone"
NOTES: Final = ("requester", "operation", "reason", "instance", ZONE)
RELEASED: Final = "released"
VERDICT: Final = "turn"
SIZE: Final = "pool-size"
# Part of the name of a Lease, and the value of a label, which has 63 characters at most.
POOL = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


class SlotKind(StrEnum):
    # May drain and reboot.
    DISRUPT = "disrupt"
    # May pull an image; it limits the load of the registry.
    STAGE = "stage"


@dataclass(frozen=True, slots=True)
class SlotPool:
    """``count`` is the number of slots, ``pause`` the seconds after a release in which none is taken, ``share`` words
    about where the number comes from.

    Raises ``ValueError`` for an invalid name or count.
    """

    name: str
    kind: SlotKind
    count: int
    pause: float = 0.0
    share: str = ""

    def __post_init__(self) -> None:
        if not POOL.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a valid pool name: use lower case letters, digits and dashes")
        if self.count < 1:
            raise ValueError(f"a pool needs at least one slot, not {self.count}")

    def lease(self, index: int) -> str:
        return f"slot-{self.kind}-{self.name}-{index}"

    @property
    def labels(self) -> Mapping[str, str]:
        return {f"{PREFIX}slot": self.kind.value, f"{PREFIX}pool": self.name}

    @property
    def selector(self) -> str:
        return ",".join(f"{key}={value}" for key, value in self.labels.items())


@dataclass(frozen=True, slots=True)
class Slot:
    index: int
    lease: NodeLease
    node_uid: str

    @property
    def held(self) -> bool:
        """Return whether it has a holder. An admin may clear the holder instead of deleting the Lease."""
        return bool(self.lease.identity)


def read_slots(pool: SlotPool, items: Sequence[LeaseObject]) -> Sequence[Slot]:
    """Return the slots of the pool by index. Other objects with its labels are ignored."""
    slots = []
    for item in items:
        meta = item["metadata"]
        name = meta["name"]
        number = name.removeprefix(pool.lease(0)[:-1])
        # The whole name is compared, so that ``-01`` is no second slot 1.
        if not (number.isascii() and number.isdigit() and pool.lease(int(number)) == name):
            continue
        owners = [owner["uid"] for owner in meta.get("ownerReferences") or () if owner["kind"] == "Node"]
        slots.append(Slot(int(number), read_lease(item), owners[0] if owners else ""))
    return sorted(slots, key=lambda slot: slot.index)


def held_by(slots: Sequence[Slot], node_uid: str, instance: str) -> Sequence[Slot]:
    """Return the slots of this node on this host, of any operation: a node needs no second one."""
    return [
        slot
        for slot in slots
        if slot.held and slot.node_uid == node_uid and slot.lease.notes.get("instance") == instance
    ]


def free_indices(pool: SlotPool, slots: Sequence[Slot], first: int) -> Sequence[int]:
    """Return the free slots to try. ``first`` spreads nodes that try at the same time."""
    held = {slot.index for slot in slots if slot.held}
    # The lowest slots that fit beside those held above them: all nodes of the pool compute the same ones.
    usable = next(m for m in range(pool.count, -1, -1) if m == 0 or m + sum(i >= m for i in held) <= pool.count)
    free = [index for index in range(usable) if index not in held]
    # Nodes that all tried the lowest slot would conflict, and all but one of them would try again.
    turn = first % len(free) if free else 0
    return [*free[turn:], *free[:turn]]


def new_slot(
    pool: SlotPool,
    index: int,
    claim: Claim,
    node: str,
    node_uid: str,
    now: float | None,
    notes: Mapping[str, str] = MappingProxyType({}),
) -> Object:
    """``notes`` are further annotations. ``now`` is by the server's clock; None if it is not known."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": pool.lease(index), "labels": dict(pool.labels), **_meta(claim, node, node_uid, notes)},
        "spec": _spec(claim, node, now),
    }


def taken(
    slot: Slot,
    claim: Claim,
    node: str,
    node_uid: str,
    now: float | None,
    notes: Mapping[str, str] = MappingProxyType({}),
) -> Object:
    """Return a merge patch that takes a free slot or changes its operation. It fails if the slot has changed."""
    # The time of the last release stays: a slot that has one is never deleted by an agent, so that no pause is lost.
    meta = {**_meta(claim, node, node_uid, notes), "resourceVersion": slot.lease.version}
    return {"metadata": meta, "spec": _spec(claim, node, now)}


def _spec(claim: Claim, node: str, now: float | None) -> Object:
    # No leaseDurationSeconds: a slot does not expire.
    times = {} if now is None else {"acquireTime": micro_time(now), "renewTime": micro_time(now)}
    return {"holderIdentity": f"{node}/{claim.operation}", **times}


def _meta(claim: Claim, node: str, node_uid: str, notes: Mapping[str, str]) -> Object:
    return {"annotations": {**notes_of(claim), **notes}, "ownerReferences": owner_of(node, node_uid)}


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
    # Never earlier than before, which the policy of the cluster refuses. The texts are in the order of the times.
    at = max(micro_time(latest), slot.lease.notes.get(RELEASED, "").partition(" ")[0])
    # In a merge patch (RFC 7396), null removes a key.
    notes = {**{PREFIX + key: None for key in NOTES}, PREFIX + RELEASED: f"{at} {node}"}
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
    pauses = [_of(slot, pause, earliest, latest, seen) for slot in slots if not slot.held]
    last = max(pauses, key=lambda candidate: candidate.left, default=None)
    return last if last is not None and last.left > 0 else None


def _of(slot: Slot, pause: float, earliest: float, latest: float, seen: Callable[[Slot], float]) -> PoolPause:
    time, _, node = slot.lease.notes.get(RELEASED, "").partition(" ")
    if not time and VERDICT in slot.lease.notes:
        return PoolPause(0.0)
    at = parse_time(time)
    # No agent writes a time ahead of the server's, so one of those would keep the pool paused for no cause.
    if at is None or at > latest + SLACK:
        return PoolPause(pause - seen(slot))
    return PoolPause(at + pause - earliest, node, seconds_time(at), seconds_time(at + pause))
