"""Another holder of the node lease: medik8s' protocol as its operators speak it, by a client of its own.

The rules are those of its lease manager: a lease is valid while ``renewTime <= now <= renewTime + duration`` by the
checker's wall clock; one without either is free; taking over one that is not valid overwrites it and counts a
transition; one's own is renewed in place; giving it back deletes it. So these tests see what the node-maintenance- and
the node-healthcheck-operator would do with what we write, not what we think of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from integration.cluster.api import ApiError, Object
from integration.cluster.cluster import LEASE_PATH, Cluster

FORM: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


class AlreadyHeld(Exception):
    """The holder is the argument."""


@dataclass
class Manager:
    """``later`` is how far ahead its wall clock is, in seconds: hours may pass for it in a moment."""

    cluster: Cluster
    identity: str
    later: float = 0.0

    def request(self, node: str, seconds: int) -> Object:
        """Raises ``AlreadyHeld``, and ``ApiError`` 409 where another client was faster."""
        now, found = self._now(), self.find(node)
        spec: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": seconds,
            "renewTime": now.strftime(FORM),
        }
        if found is None:
            fresh = {**spec, "acquireTime": spec["renewTime"], "leaseTransitions": 0}
            body = {"metadata": {"name": f"node-{node}", "ownerReferences": self._owner(node)}, "spec": fresh}
            return self.cluster.admin.create(LEASE_PATH, body)
        held = found["spec"]
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        if held.get("holderIdentity") != self.identity:
            if self._valid(held, now):
                raise AlreadyHeld(held["holderIdentity"])
            spec |= {"acquireTime": spec["renewTime"], "leaseTransitions": (held.get("leaseTransitions") or 0) + 1}
            version["ownerReferences"] = self._owner(node)
        return self.cluster.admin.patch(f"{LEASE_PATH}/node-{node}", {"metadata": version, "spec": spec})

    def invalidate(self, node: str) -> None:
        found = self.find(node)
        if found is None:
            return
        if found["spec"].get("holderIdentity") != self.identity:
            raise AlreadyHeld(found["spec"].get("holderIdentity"))
        self.cluster.admin.delete(f"{LEASE_PATH}/node-{node}")

    def find(self, node: str) -> Object | None:
        return self.cluster.admin.find(f"{LEASE_PATH}/node-{node}")

    def is_kept_away(self, node: str) -> str:
        """Whom it would leave the node to if it asked now; "" if it would take it. Writes nothing."""
        found = self.find(node)
        held = found["spec"] if found is not None else {}
        return str(held["holderIdentity"]) if self._valid(held, self._now()) else ""

    def _valid(self, spec: dict[str, Any], now: datetime) -> bool:
        if not spec.get("renewTime") or not spec.get("leaseDurationSeconds"):
            return False
        renewed = datetime.strptime(spec["renewTime"], FORM).replace(tzinfo=UTC)
        return renewed <= now and now.timestamp() <= renewed.timestamp() + spec["leaseDurationSeconds"]

    def _now(self) -> datetime:
        return datetime.fromtimestamp(time.time() + self.later, UTC)  # noqa: TID251 - by its own wall clock

    def _owner(self, node: str) -> list[Object]:
        uid = self.cluster.admin.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
        return [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]


__all__ = ["AlreadyHeld", "ApiError", "Manager"]
