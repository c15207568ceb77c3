"""Write the status of the MachineConfigNode of this node. ``core.report.machine_config_node`` decides."""

from __future__ import annotations

from typing import Final

from nodeagent.core.coordination.kube_time import seconds_time
from nodeagent.core.report.machine_config_node import UpdateProgress, changed_status
from nodeagent.core.report.node_events import NodeState
from nodeagent.core.update.ports.host import Clock
from nodeagent.kube.client import KubeClient
from nodeagent.kube.errors import NotFound
from nodeagent.kube.node import NodeConditions

NODES: Final = "/apis/machineconfiguration.openshift.io/v1/machineconfignodes"
# Seconds until the object is requested again after a cluster had none.
ABSENT_FOR: Final = 3600.0


class ControlledNodeConditions:
    """The conditions of the Node, and the MachineConfigNode of a node that a machine-config-controller manages.

    A cluster without the resource gets one request in an hour. The controller creates the objects.
    """

    def __init__(self, client: KubeClient, node: str, clock: Clock) -> None:
        self._node = NodeConditions(client, node, clock)
        self._client = client
        self._path = f"{NODES}/{node}"
        self._clock = clock
        self._written: UpdateProgress | None = None
        self._absent_until = 0.0

    async def publish(self, state: NodeState) -> None:
        """Raises what ``NodeConditions.publish`` raises. If the object was changed in between, ``Conflict``."""
        await self._node.publish(state)
        progress = state.progress
        if progress is None or progress == self._written or self._clock.monotonic() < self._absent_until:
            return
        try:
            found = await self._client.get(self._path)
        except NotFound:
            self._absent_until = self._clock.monotonic() + ABSENT_FOR
            return
        now = seconds_time(self._client.server_clock.earliest(self._clock.monotonic()))
        status = changed_status(progress, found.get("status") or {}, now)
        if status is not None:
            # A merge patch replaces the list, which others write as well: only over what was read.
            same = {"resourceVersion": found["metadata"]["resourceVersion"], "uid": found["metadata"]["uid"]}
            await self._client.patch(f"{self._path}/status", {"metadata": same, "status": status})
        self._written = progress
