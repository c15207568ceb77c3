"""The node lease of medik8s as data: who holds it, whether we may take it, and what to write.

The object is a ``coordination.k8s.io/v1`` Lease ``node-<node>``, which others (node-maintenance-operator, node-
healthcheck-operator) judge by their wall clock: held while ``renewTime <= now <= renewTime + duration``. We write
times that they accept and are stricter when we read: a lease of somebody else is free for us only when it has expired
by the server's time *and* has not changed for its whole duration on our own steady clock, so that neither clock alone
can give two holders. A ``renewTime`` in the future is held, not free, and one without an end is held until a person
removes it.

Deleting and making it again starts ``leaseTransitions`` anew, so (uid, transitions, identity) is what a holding is
known by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from nodeagent.core.coordination.kube_time import ServerClock, micro_time, parse_time

__all__ = [
    "Claim",
    "HostIdentity",
    "LeaseToken",
    "NodeLease",
    "Seen",
    "Standing",
    "judge",
    "new_lease",
    "read_lease",
    "reason_lost",
    "renewal",
    "take_over",
    "why_lost",
]

PREFIX = "nodeagent.org/"
INT32 = 2**31 - 1  # the type of the integers in a Lease
BEHIND = 60.0
"""Seconds by which ``renewTime`` is written in the past, and ``leaseDurationSeconds`` longer, so that the lease ends
at the same moment. Operators of medik8s take a lease whose ``renewTime`` is later than their own clock's present:
without this margin, one whose clock is slow by a fraction of a second could take a lease that was just renewed."""
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """The Node of this host. ``instance`` distinguishes two hosts that are configured with the same node name."""

    node: str
    instance: str


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants the lease for what. ``instance`` tells two hosts apart that call themselves by the same node name."""

    holder: str
    operation: str
    reason: str
    instance: str

    @property
    def identity(self) -> str:
        return f"{self.holder}/{self.operation}"


@dataclass(frozen=True, slots=True)
class NodeLease:
    """The object as far as it matters. ``duration`` is in seconds, None if there is none."""

    uid: str
    version: str
    identity: str
    duration: float | None = None
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0
    elected: bool = False  # coordinated leader election decides about it (KEP-4355): not ours to take
    deleting: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)  # our annotations, without their prefix

    @property
    def expires(self) -> float | None:
        """Seconds since the epoch by the server's clock; None if it does not expire."""
        renewed = parse_time(self.renewed)
        return None if renewed is None or self.duration is None else renewed + self.duration

    @property
    def said(self) -> Mapping[str, str]:
        """``notes`` as far as they are the holder's: medik8s leaves those of the one before when it takes a lease."""
        whose = f"{self.notes.get('requester')}/{self.notes.get('operation')}"
        return self.notes if self.identity == whose else {}

    def is_of(self, claim: Claim) -> bool:
        return self.identity == claim.identity and self.notes.get("instance") == claim.instance


def read_lease(data: Mapping[str, Any]) -> NodeLease:
    """Takes whatever an API server answers; a field that is missing, null or of another type counts as missing."""
    meta, spec = _mapping(data.get("metadata")), _mapping(data.get("spec"))
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    annotations = _mapping(meta.get("annotations"))
    return NodeLease(
        uid=_text(meta.get("uid")),
        version=_text(meta.get("resourceVersion")),
        identity=_text(spec.get("holderIdentity")),
        duration=float(duration) if isinstance(duration, int) and abs(duration) <= INT32 else None,
        acquired=_text(spec.get("acquireTime")),
        renewed=_text(spec.get("renewTime")),
        transitions=transitions if isinstance(transitions, int) else 0,
        elected=bool(spec.get("strategy")),
        deleting=bool(meta.get("deletionTimestamp")),
        notes={key.removeprefix(PREFIX): _text(annotations[key]) for key in annotations if key.startswith(PREFIX)},
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Seen:
    """Since when, on our steady clock, the object has not changed. Any change, also of an annotation, starts it
    anew."""

    version: str
    since: float

    @classmethod
    def again(cls, before: Seen | None, lease: NodeLease | None, steady: float) -> Seen | None:
        if lease is None:
            return None
        version = f"{lease.uid}/{lease.version}"
        return before if before is not None and before.version == version else cls(version, steady)


class Standing(StrEnum):
    FREE = "free"  # nobody's: make it, or take it where it has no holder
    OURS = "ours"
    EXPIRED = "expired"  # somebody else's, and over by both clocks
    HELD = "held"
    FRESH = "expired, but it changed not long ago"
    AHEAD = "held, by a clock that is ahead of the API server's"
    ENDLESS = "held without an end"
    ELECTED = "decided by coordinated leader election"
    DELETING = "about to be deleted"


def judge(lease: NodeLease | None, seen: Seen | None, claim: Claim, server: ServerClock, steady: float) -> Standing:
    """Raises ``Uncertain`` if no answer has told the server's time."""
    if lease is None:
        return Standing.FREE
    if lease.deleting:
        return Standing.DELETING
    if lease.elected:
        return Standing.ELECTED
    if lease.identity == "":
        return Standing.FREE
    if lease.is_of(claim):
        return Standing.OURS
    renewed, expires = parse_time(lease.renewed), lease.expires
    if renewed is None or expires is None or lease.duration is None:
        return Standing.ENDLESS
    if renewed > server.latest(steady):
        return Standing.AHEAD
    if expires >= server.earliest(steady):
        return Standing.HELD
    if seen is None or steady - seen.since <= lease.duration:
        return Standing.FRESH
    return Standing.EXPIRED


def new_lease(claim: Claim, name: str, node: str, node_uid: str, duration: float, now: float) -> Object:
    spec = {**_times(duration, now), "acquireTime": micro_time(now), "leaseTransitions": 0}
    meta = {"name": name, "annotations": _notes(claim), "ownerReferences": _owner(node, node_uid)}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": meta,
        "spec": {**spec, "holderIdentity": claim.identity},
    }


def take_over(lease: NodeLease, claim: Claim, node: str, node_uid: str, duration: float, now: float) -> Object:
    """A merge patch that fails if the lease changed meanwhile."""
    spec = {**_times(duration, now), "acquireTime": micro_time(now), "leaseTransitions": lease.transitions + 1}
    meta = {
        "resourceVersion": lease.version,
        "annotations": _notes(claim),
        "ownerReferences": _owner(node, node_uid),
    }
    return {"metadata": meta, "spec": {**spec, "holderIdentity": claim.identity}}


def renewal(lease: NodeLease, duration: float, now: float) -> Object:
    """A merge patch that fails if the lease changed meanwhile. What was noted when it was taken stays."""
    return {"metadata": {"resourceVersion": lease.version}, "spec": _times(duration, now)}


def _times(duration: float, now: float) -> Object:
    return {"leaseDurationSeconds": max(1, round(duration)) + round(BEHIND), "renewTime": micro_time(now - BEHIND)}


def _notes(claim: Claim) -> dict[str, str]:
    notes = {
        "requester": claim.holder,
        "operation": claim.operation,
        "reason": claim.reason,
        "instance": claim.instance,
    }
    return {PREFIX + key: value for key, value in notes.items()}


def _owner(node: str, uid: str) -> list[Object]:
    """With it the lease goes when the Node goes."""
    return [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]


DELETED = "it was deleted"


def reason_lost(token: LeaseToken, why: str) -> str:
    """``why`` is from ``why_lost``. A holder of medik8s that gives back a lease which it no longer has deletes it,
    whoever has it by then. So who deletes a lease that was taken over need not mean to cancel our operation."""
    return "LeaseGivenBack" if why == DELETED and token.transitions else "LeaseLost"


@dataclass(frozen=True, slots=True)
class LeaseToken:
    """What we remember of a holding, also through a reboot. ``lost`` says how it ended if that was not our doing: this
    operation does not get the lease again, because whoever took it away meant that."""

    claim: Claim
    uid: str
    transitions: int
    boot_id: str
    rebooting: bool = False
    lost: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LeaseToken:
        """Raises ``TypeError`` or ``KeyError`` on anything else."""
        return cls(**{**data, "claim": Claim(**data["claim"])})

    def ended(self, why: str) -> LeaseToken:
        return replace(self, lost=why)


def why_lost(token: LeaseToken, lease: NodeLease | None) -> str:
    """ "" if ``lease`` still is the holding that ``token`` remembers, else what happened, in words."""
    if token.lost:
        return token.lost
    if lease is None or lease.deleting:
        return DELETED
    if not lease.is_of(token.claim):
        return f"{lease.identity} took it" if lease.identity else "its holder was removed"
    if (lease.uid, lease.transitions) != (token.uid, token.transitions):
        return "it was taken or made anew meanwhile"
    return ""
