"""Slots of a pool: how many of its nodes may do the same at once. Each slot is a Lease, and their names are the count.

Slot ``i`` of ``n`` is the Lease ``slot-<kind>-<pool>-<i>``: no two nodes can have the same name, so no more than ``n``
can have one at all. A slot does not expire. A node that failed in the middle keeps it, so that a bad update does not
walk through the fleet; a person who has looked deletes the Lease. A slot of a Node that is deleted goes with it, by its
owner reference. Where ``n`` was made smaller, what is held above it still counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nodeagent.core.coordination.kube_time import micro_time
from nodeagent.core.coordination.lease import PREFIX, Claim, NodeLease, read_lease

__all__ = ["Kind", "Object", "Slot", "SlotPool", "free_indices", "held_by", "new_slot", "read_slots", "taken"]

Object = dict[str, Any]
POOL = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


class Kind(StrEnum):
    DISRUPT = "disrupt"  # may drain and reboot
    STAGE = "stage"  # may pull an image: so that a fleet does not hit the registry together


@dataclass(frozen=True, slots=True)
class SlotPool:
    """``count`` is the most that are held at once. Raises ``ValueError`` for what is no pool."""

    name: str
    kind: Kind
    count: int

    def __post_init__(self) -> None:
        if not POOL.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no name of a pool: lower case letters, digits and dashes")
        if self.count < 1:
            raise ValueError(f"a pool of {self.count} slots never lets anybody begin")

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
        """One without a holder was cleared by a person, which gives it back as deleting it does."""
        return bool(self.lease.identity)


def read_slots(pool: SlotPool, items: Sequence[Mapping[str, Any]]) -> Sequence[Slot]:
    """Those of ``items`` that are slots of the pool, by index. Whatever else bears the labels is not."""
    found = []
    for item in items:
        meta = item.get("metadata") or {}
        name = str(meta.get("name") or "")
        number = name.removeprefix(pool.lease(0)[:-1])
        if not (number.isascii() and number.isdigit() and pool.lease(int(number)) == name):
            continue
        owners = [each.get("uid") for each in meta.get("ownerReferences") or () if each.get("kind") == "Node"]
        found.append(Slot(int(number), read_lease(item), str(owners[0]) if owners else ""))
    return sorted(found, key=lambda slot: slot.index)


def held_by(slots: Sequence[Slot], node_uid: str, instance: str) -> Sequence[Slot]:
    """The slots of this node on this host, whatever operation took them: a node needs no second one."""
    return [
        slot
        for slot in slots
        if slot.held and slot.node_uid == node_uid and slot.lease.notes.get("instance") == instance
    ]


def free_indices(pool: SlotPool, slots: Sequence[Slot], first: int) -> Sequence[int]:
    """Those to try, beginning at about ``first``: nodes that look at once should not all want the same."""
    held = {slot.index for slot in slots if slot.held}
    # As many of the lowest as fit beside what is held above them: all who look at this pool agree on those.
    usable = next(m for m in range(pool.count, -1, -1) if m == 0 or m + sum(i >= m for i in held) <= pool.count)
    free = [index for index in range(usable) if index not in held]
    turn = first % len(free) if free else 0
    return [*free[turn:], *free[:turn]]


def new_slot(pool: SlotPool, index: int, claim: Claim, node: str, node_uid: str, now: float | None) -> Object:
    """``now`` by the server's clock, for people only; None if it is not known."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": pool.lease(index), "labels": dict(pool.labels), **_meta(claim, node, node_uid)},
        "spec": _spec(claim, node, now),
    }


def taken(slot: Slot, claim: Claim, node: str, node_uid: str, now: float | None) -> Object:
    """A merge patch for one without a holder, or of ours with another operation; fails if it changed meanwhile."""
    meta = {"resourceVersion": slot.lease.version, **_meta(claim, node, node_uid)}
    return {"metadata": meta, "spec": _spec(claim, node, now)}


def _spec(claim: Claim, node: str, now: float | None) -> Object:
    times = {} if now is None else {"acquireTime": micro_time(now), "renewTime": micro_time(now)}
    return {"holderIdentity": f"{node}/{claim.operation}", **times}


def _meta(claim: Claim, node: str, node_uid: str) -> Object:
    notes = {
        "requester": claim.holder,
        "operation": claim.operation,
        "reason": claim.reason,
        "instance": claim.instance,
    }
    return {
        "annotations": {PREFIX + key: value for key, value in notes.items()},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}],
    }
