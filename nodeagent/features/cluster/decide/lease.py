# SPDX-License-Identifier: Apache-2.0
"""The node lease of medik8s: whether it may be taken, and what to write.

The object is a ``coordination.k8s.io/v1`` Lease ``node-<node>``. Other clients (node-maintenance-operator,
node-healthcheck-operator) judge it by their wall clock: it is held while ``renewTime <= now <= renewTime + duration``.
The agent writes times that they accept, and reads more strictly: a lease of another holder is free only when it has
expired by the server's time *and* has not changed for its whole duration on the steady clock of this host, so that
neither clock alone can lead to two holders. A ``renewTime`` in the future is held, and so is a lease without an end,
until an admin removes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nodeagent.core.coordination.kube_time import ServerClock, micro_time, parse_time
from nodeagent.core.coordination.lease import Claim, NodeLease, Object, notes_of, owner_of
from nodeagent.kinds import AnyReason
from nodeagent.reasons import Reason

# Seconds by which ``renewTime`` is written in the past, and ``leaseDurationSeconds`` longer, so that the lease ends at
# the same moment. Operators of medik8s take a lease whose ``renewTime`` is ahead of their own clock: without this
# margin, an operator whose clock is slow by a fraction of a second could take a lease that was just renewed.
BEHIND = 60.0


@dataclass(frozen=True, slots=True)
class LeaseObservation:
    """Since when, on the steady clock, the object has not changed. A change of an annotation counts, too."""

    version: str
    since: float

    @classmethod
    def again(cls, before: LeaseObservation | None, lease: NodeLease | None, steady: float) -> LeaseObservation | None:
        if lease is None:
            return None
        version = f"{lease.uid}/{lease.version}"
        return before if before is not None and before.version == version else cls(version, steady)


class Standing(StrEnum):
    # The lease does not exist, or has no holder.
    FREE = "free"
    OURS = "ours"
    # Held by another holder, and expired by both clocks.
    EXPIRED = "expired"
    HELD = "held"
    FRESH = "expired, but it changed not long ago"
    AHEAD = "held, by a clock that is ahead of the API server's"
    ENDLESS = "held without an end"
    ELECTED = "decided by coordinated leader election"
    DELETING = "about to be deleted"


def judge(
    lease: NodeLease | None, seen: LeaseObservation | None, claim: Claim, server: ServerClock, steady: float
) -> Standing:
    """Decide whether ``claim`` may take the lease. Raises ``Uncertain`` before the first answer of the server."""
    if lease is None:
        return Standing.FREE
    # A Lease with a deletion timestamp disappears soon. A new one with the same name would be deleted with it.
    if lease.deleting:
        return Standing.DELETING
    if lease.elected:
        return Standing.ELECTED
    if lease.identity == "":
        return Standing.FREE
    if lease.is_of(claim):
        return Standing.OURS
    renewed, expires = parse_time(lease.renewed), lease.expires
    # medik8s takes such a lease as free. Waiting for an operator is the safe choice.
    if renewed is None or expires is None or lease.duration is None:
        return Standing.ENDLESS
    # The clock of the holder is ahead, so its end cannot be compared with the time of the server.
    if renewed > server.latest(steady):
        return Standing.AHEAD
    if expires >= server.earliest(steady):
        return Standing.HELD
    # The lease must also have been unchanged for its whole duration on the steady clock of this host.
    if seen is None or steady - seen.since <= lease.duration:
        return Standing.FRESH
    return Standing.EXPIRED


def new_lease(claim: Claim, name: str, node: str, node_uid: str, duration: float, now: float) -> Object:
    spec = {**_times(duration, now), "acquireTime": micro_time(now), "leaseTransitions": 0}
    meta = {"name": name, "annotations": notes_of(claim), "ownerReferences": owner_of(node, node_uid)}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": meta,
        "spec": {**spec, "holderIdentity": claim.identity},
    }


def take_over(lease: NodeLease, claim: Claim, node: str, node_uid: str, duration: float, now: float) -> Object:
    """Return a merge patch that takes the lease, and fails if it has changed."""
    spec = {**_times(duration, now), "acquireTime": micro_time(now), "leaseTransitions": lease.transitions + 1}
    meta = {
        "resourceVersion": lease.version,
        "annotations": notes_of(claim),
        "ownerReferences": owner_of(node, node_uid),
    }
    return {"metadata": meta, "spec": {**spec, "holderIdentity": claim.identity}}


def renewal(lease: NodeLease, duration: float, now: float) -> Object:
    """Return a merge patch that renews the lease, and fails if it has changed. The annotations stay."""
    return {"metadata": {"resourceVersion": lease.version}, "spec": _times(duration, now)}


def _times(duration: float, now: float) -> Object:
    # The API server refuses a duration of 0.
    return {"leaseDurationSeconds": max(1, round(duration)) + round(BEHIND), "renewTime": micro_time(now - BEHIND)}


DELETED = "it was deleted"


def reason_lost(token: LeaseToken, cause: str) -> AnyReason:
    """Return the reason for ``cause``, which is from ``why_lost``."""
    # A holder of medik8s that releases a lease which it no longer has deletes it, whichever client holds it by then. So
    # the deletion of a lease that was taken over is not necessarily a request to cancel this operation.
    return Reason.LEASE_GIVEN_BACK if cause == DELETED and token.transitions else Reason.LEASE_LOST


@dataclass(frozen=True, slots=True)
class LeaseToken:
    """A holding as the store keeps it, also through a reboot. ``lost`` says how it was taken away: its operation does
    not get the lease again, because that was intended."""

    claim: Claim
    uid: str
    transitions: int
    lost: str = ""


def why_lost(token: LeaseToken, lease: NodeLease | None) -> str:
    """Return the cause of the end of the holding of ``token``; "" if ``lease`` still is that holding."""
    if token.lost:
        return token.lost
    if lease is None or lease.deleting:
        return DELETED
    if not lease.is_of(token.claim):
        return f"{lease.identity} took it" if lease.identity else "its holder was removed"
    # The number of transitions shows that another holder had the lease in between.
    if (lease.uid, lease.transitions) != (token.uid, token.transitions):
        return "it was taken or created again"
    return ""
