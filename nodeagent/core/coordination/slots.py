"""Slots of a pool: how many of its nodes may do the same at once. Each slot is a Lease, and their names are the count.

Slot ``i`` of ``n`` is the Lease ``slot-<kind>-<pool>-<i>``: two nodes cannot have the same name, so no more than ``n``
have one at all. A slot does not expire. A node that failed half-way keeps it, so that a bad update does not spread to
the fleet; an admin deletes the Lease after the repair. A slot of a deleted Node is deleted with it, by its owner
reference. If ``n`` is reduced, the slots that are held above it still count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from nodeagent.core.coordination.kube_time import micro_time
from nodeagent.core.coordination.lease import PREFIX, Claim, NodeLease, read_lease

Object = dict[str, Any]
# Annotations of a slot: those of its holder, and the time and the node of its last release (``pool_pause``).
NOTES: Final = ("requester", "operation", "reason", "instance")
RELEASED: Final = "released"
# Part of the name of a Lease, and the value of a label, which has 63 characters at most.
POOL = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


class SlotKind(StrEnum):
    # May drain and reboot.
    DISRUPT = "disrupt"
    # May pull an image; it limits the load of the registry.
    STAGE = "stage"


@dataclass(frozen=True, slots=True)
class SlotPool:
    """``count`` is the number of slots, ``pause`` the seconds after a release in which none is taken.

    Raises ``ValueError`` for an invalid name or count.
    """

    name: str
    kind: SlotKind
    count: int
    pause: float = 0.0

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


def read_slots(pool: SlotPool, items: Sequence[Mapping[str, Any]]) -> Sequence[Slot]:
    """Return the slots of the pool by index. Other objects with its labels are ignored."""
    found = []
    for item in items:
        meta = item.get("metadata") or {}
        name = str(meta.get("name") or "")
        number = name.removeprefix(pool.lease(0)[:-1])
        # The whole name is compared, so that ``-01`` is no second slot 1.
        if not (number.isascii() and number.isdigit() and pool.lease(int(number)) == name):
            continue
        owners = [each.get("uid") for each in meta.get("ownerReferences") or () if each.get("kind") == "Node"]
        found.append(Slot(int(number), read_lease(item), str(owners[0]) if owners else ""))
    return sorted(found, key=lambda slot: slot.index)


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


def new_slot(pool: SlotPool, index: int, claim: Claim, node: str, node_uid: str, now: float | None) -> Object:
    """``now`` is by the server's clock and only for display; None if it is not known."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": pool.lease(index), "labels": dict(pool.labels), **_meta(claim, node, node_uid)},
        "spec": _spec(claim, node, now),
    }


def taken(slot: Slot, claim: Claim, node: str, node_uid: str, now: float | None) -> Object:
    """Return a merge patch that takes a free slot or changes its operation. It fails if the slot has changed."""
    meta = _meta(claim, node, node_uid)
    if RELEASED in slot.lease.notes:
        meta["annotations"][PREFIX + RELEASED] = None
    meta["resourceVersion"] = slot.lease.version
    return {"metadata": meta, "spec": _spec(claim, node, now)}


def _spec(claim: Claim, node: str, now: float | None) -> Object:
    # No leaseDurationSeconds: a slot does not expire.
    times = {} if now is None else {"acquireTime": micro_time(now), "renewTime": micro_time(now)}
    return {"holderIdentity": f"{node}/{claim.operation}", **times}


def _meta(claim: Claim, node: str, node_uid: str) -> Object:
    notes = (claim.holder, claim.operation, claim.reason, claim.instance)
    return {
        "annotations": {PREFIX + key: value for key, value in zip(NOTES, notes, strict=True)},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}],
    }
