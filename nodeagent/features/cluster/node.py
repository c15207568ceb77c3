# SPDX-License-Identifier: Apache-2.0
"""The Node of this host: whether it is ready, and the conditions that the agent writes; and its MachineConfigNode.

``readiness`` of ``core.coordination`` decides, and ``node_events`` and ``machine_config_node`` of ``report``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Final

from nodeagent.core.backoff import delays
from nodeagent.core.coordination.kube_objects import LeaseObject, MachineConfigNode
from nodeagent.core.coordination.kube_time import seconds_time
from nodeagent.features.cluster.decide.conditions import NodeState, conditions, differing
from nodeagent.features.cluster.decide.machine_config_node import UpdateProgress, changed_status
from nodeagent.features.cluster.decide.readiness import unready
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import Forbidden, NotFound
from nodeagent.update.ports.host import Clock

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
MACHINE_CONFIG_NODES: Final = "/apis/machineconfiguration.openshift.io/v1/machineconfignodes"
# Seconds until the object is requested again in a cluster that does not have the kind.
ABSENT_FOR: Final = 3600.0
# The same in a cluster that has the kind, where the controller creates the object at the first drain of the node: the
# first pause after a change, and the longest one.
SOON, LATER = 15.0, 300.0


class KubeReadiness:
    """Implements ``ports.NodeReadiness``."""

    def __init__(self, client: KubeClient, node: str, clock: Clock) -> None:
        self._client = client
        self._node = node
        self._clock = clock

    async def unready(
        self, since: str = "", outdated: Mapping[str, str] | None = None, kept_back: Mapping[str, Decimal] | None = None
    ) -> str:
        """See ``ports.NodeReadiness``. Without the right to read the lease, the condition alone decides."""
        node = await self._client.node(self._node)
        lease: LeaseObject | None = None
        if since:
            with suppress(Forbidden, NotFound):
                lease = await self._client.read(f"{LEASES}/{self._node}", LeaseObject)
        return unready(node, lease, since, self._clock.now(), outdated, kept_back)


class NodeConditions:
    def __init__(self, client: KubeClient, node: str, clock: Clock) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._written: NodeState | None = None

    async def publish(self, state: NodeState) -> float | None:
        """Write the conditions of ``state``, unless this process wrote them last. Return the seconds after which the
        same state is to be published again, None if all of it was written.

        Raises ``Refused`` (``NodeUnknown``) and what the client raises; the next call tries again.
        """
        # It is not shown in the conditions of the Node.
        state = replace(state, progress=None)
        if state == self._written:
            return None
        node = await self._client.node(self._node)
        now = seconds_time(self._client.server_clock.earliest(self._clock.monotonic()))
        there = (node.get("status") or {}).get("conditions") or ()
        changed = differing(conditions(state), there, now)
        if changed:
            # A patch by type leaves the conditions alone that the kubelet writes at the same time.
            await self._client.patch_lists(f"/api/v1/nodes/{self._node}/status", {"status": {"conditions": changed}})
        self._written = state
        return None


class ControlledNodeConditions(NodeConditions):
    """The conditions of the Node, and the MachineConfigNode of a node that a machine-config-controller manages.

    A cluster without the kind gets one request in an hour. The controller creates the objects, so a missing one is
    requested again at each change, and after it with pauses that grow to some minutes.
    """

    def __init__(self, client: KubeClient, node: str, clock: Clock) -> None:
        super().__init__(client, node, clock)
        self._path = f"{MACHINE_CONFIG_NODES}/{node}"
        self._progress: UpdateProgress | None = None
        self._absent_until = 0.0
        self._missed: UpdateProgress | None = None
        self._pauses = delays(SOON, LATER)

    async def publish(self, state: NodeState) -> float | None:
        """Write the state. Raises what ``NodeConditions.publish`` raises, ``Conflict`` if the object has changed."""
        await super().publish(state)
        progress = state.progress
        if progress is None or progress == self._progress or self._clock.monotonic() < self._absent_until:
            return None
        try:
            config_node = await self._client.read(self._path, MachineConfigNode)
        except NotFound as missing:
            # For an unknown kind the API server answers without an object.
            if missing.detail.get("reason") == "NotFound":
                if progress != self._missed:
                    self._missed, self._pauses = progress, delays(SOON, LATER)
                return next(self._pauses)
            self._absent_until = self._clock.monotonic() + ABSENT_FOR
            return None
        now = seconds_time(self._client.server_clock.earliest(self._clock.monotonic()))
        status = changed_status(progress, config_node.get("status") or {}, now)
        if status is not None:
            # A merge patch replaces the list, which others write as well: only over what was read.
            meta = config_node["metadata"]
            same = {"resourceVersion": meta["resourceVersion"], "uid": meta["uid"]}
            await self._client.patch(f"{self._path}/status", {"metadata": same, "status": status})
        self._progress = progress
        return None
