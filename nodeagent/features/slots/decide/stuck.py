# SPDX-License-Identifier: Apache-2.0
"""Slots whose holder does not give them back: an operator has to look at the node, and frees the slot.

A slot does not expire. That of a deleted Node is deleted by the garbage collector of the cluster, by its owner
reference, so it is shown here for a moment only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nodeagent.core.coordination.annotations import clean
from nodeagent.core.coordination.kube_objects import LeaseObject, Node
from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.core.coordination.lease import PREFIX, read_lease
from nodeagent.features.slots.decide.rollout import NodeProgress, Rollout

NAMESPACE: Final = "nodeagent"
# The label of a slot, whose value is its kind.
SLOT_LABEL: Final = f"{PREFIX}slot"
POOL_LABEL: Final = f"{PREFIX}pool"
# Seconds for which a node may be away: what a node lease covers of a reboot.
REBOOT: Final = 1800.0


@dataclass(frozen=True, slots=True)
class StuckSlot:
    """``pool`` is that of the slot. ``since`` is when the slot was taken, "" if that is not known."""

    # In the order of the JSON.
    name: str
    pool: str
    node: str
    since: str
    why: str

    @property
    def command(self) -> str:
        """Return the command that frees the slot."""
        return f"kubectl delete lease -n {NAMESPACE} {self.name}"


def stuck_slots(
    slots: Sequence[LeaseObject], nodes: Mapping[str, Node], fleet: Rollout, now: float | None
) -> Sequence[StuckSlot]:
    """``nodes`` are by name; ``now`` is the time of the API server in seconds since the epoch, None if not known."""
    failed = {
        member.name: member.reason.partition(":")[0] or str(member.progress)
        for pool in fleet.pools
        for member in pool.having(NodeProgress.DEGRADED)
    }
    stuck = []
    for data in slots:
        lease, meta = read_lease(data), data["metadata"]
        name = lease.identity.partition("/")[0]
        owners = [owner["uid"] for owner in meta.get("ownerReferences") or () if owner["kind"] == "Node"]
        cause = _why(nodes.get(name), owners, failed.get(name, ""), now) if lease.identity else ""
        if cause:
            pool = (meta.get("labels") or {}).get(POOL_LABEL, "")
            stuck.append(StuckSlot(meta["name"], pool, clean(name), lease.acquired, cause))
    return sorted(stuck, key=lambda slot: slot.name)


def _why(node: Node | None, owners: Sequence[str], failed: str, now: float | None) -> str:
    if node is None:
        return "its Node does not exist"
    if owners and node["metadata"]["uid"] not in owners:
        return "its Node was created again"
    if failed:
        return clean(f"its update failed: {failed}")
    for condition in (node.get("status") or {}).get("conditions") or ():
        since = parse_time(condition.get("lastTransitionTime") or "")
        if condition["type"] == "Ready" and condition["status"] != "True" and since is not None and now is not None:
            # Shorter, and it may be rebooting.
            return f"its Node is not ready since {condition['lastTransitionTime']}" if now - since > REBOOT else ""
    return ""
