# SPDX-License-Identifier: Apache-2.0
"""A Lease of ``coordination.k8s.io/v1`` as data, as nodeagent and medik8s write it: of a node, or of a slot.

A lease that is deleted and created again restarts ``leaseTransitions``, so (uid, transitions, identity) identify a
holding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeagent.core.coordination.kube_objects import LeaseObject
from nodeagent.core.coordination.kube_time import parse_time

PREFIX = "nodeagent.org/"
# The type of the integers in a Lease.
INT32 = 2**31 - 1

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """The Node of this host. ``instance`` distinguishes two hosts that are configured with the same node name."""

    node: str
    instance: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A request for the lease. ``instance`` as in ``HostIdentity``."""

    holder: str
    operation: str
    reason: str
    instance: str

    @property
    def identity(self) -> str:
        # medik8s compares the whole text, so that each operation is a holder of its own to it.
        return f"{self.holder}/{self.operation}"


@dataclass(frozen=True, slots=True)
class NodeLease:
    """The fields of a Lease that matter. ``duration`` is in seconds, None without one."""

    uid: str
    version: str
    identity: str
    duration: float | None = None
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0
    # Coordinated leader election (KEP-4355) gave the lease, so it must not be taken.
    elected: bool = False
    deleting: bool = False
    # Annotations of nodeagent, without their prefix.
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def expires(self) -> float | None:
        """Return the seconds since the epoch by the server's clock; None without an end."""
        renewed = parse_time(self.renewed)
        return None if renewed is None or self.duration is None else renewed + self.duration

    @property
    def holder_notes(self) -> Mapping[str, str]:
        """Return the notes if they are the holder's: medik8s takes a lease without removing older ones."""
        whose = f"{self.notes.get('requester')}/{self.notes.get('operation')}"
        return self.notes if self.identity == whose else {}

    def is_of(self, claim: Claim) -> bool:
        return self.identity == claim.identity and self.notes.get("instance") == claim.instance


def read_lease(data: LeaseObject) -> NodeLease:
    meta, spec = data["metadata"], data.get("spec") or {}
    duration, annotations = spec.get("leaseDurationSeconds"), meta.get("annotations") or {}
    return NodeLease(
        uid=meta["uid"],
        version=meta["resourceVersion"],
        identity=spec.get("holderIdentity") or "",
        # Behind the type of the API, a duration would be no time any more.
        duration=float(duration) if duration is not None and abs(duration) <= INT32 else None,
        acquired=spec.get("acquireTime") or "",
        renewed=spec.get("renewTime") or "",
        transitions=spec.get("leaseTransitions") or 0,
        elected=bool(spec.get("strategy")),
        deleting=bool(meta.get("deletionTimestamp")),
        # Annotations of other programs are not read, and a patch leaves them as they are.
        notes={key.removeprefix(PREFIX): annotations[key] for key in annotations if key.startswith(PREFIX)},
    )


def notes_of(claim: Claim) -> dict[str, str]:
    return {
        f"{PREFIX}requester": claim.holder,
        f"{PREFIX}operation": claim.operation,
        f"{PREFIX}reason": claim.reason,
        f"{PREFIX}instance": claim.instance,
    }


def owner_of(node: str, uid: str) -> list[Object]:
    """Return the owner reference with which the lease is deleted together with the Node."""
    return [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]
