# SPDX-License-Identifier: Apache-2.0
"""The connection of this host to its cluster, and every adapter that uses it.

Loaded only where a cluster is configured. Building it sends no request, so that a daemon starts and resumes an update
while the API server is down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nodeagent.core.coordination.drain import DrainPolicy, Remaining
from nodeagent.core.coordination.drain_order import DrainOrder
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.kube.drain import KubeNode
from nodeagent.kube.events import NodeEvents
from nodeagent.kube.gates import Gates
from nodeagent.kube.lease import KubeLease, TokenStore
from nodeagent.kube.mco_drain import ControllerDrain, EitherDrain
from nodeagent.kube.node import ControlledNodeConditions, KubeReadiness, NodeConditions
from nodeagent.settings.schema import Settings
from nodeagent.update.ports.coordination import NodeDrainer
from nodeagent.update.ports.host import Clock


class Cluster:
    """``controls_node`` as in ``core.coordination.gates.node_gates``. ``report`` receives the remaining pods after each
    round of a drain."""

    def __init__(
        self,
        settings: Settings,
        tokens: TokenStore,
        clock: Clock,
        *,
        instance: str,
        controls_node: bool,
        report: Callable[[Sequence[Remaining]], None],
        private: str = "/run/nodeagent",
    ) -> None:
        about, name = settings.cluster, settings.node_name
        access = ClusterAccess(about.kubeconfig, private=private, service_account=Path(about.service_account))
        self.name = name
        self.controls_node = controls_node
        host = HostIdentity(name, instance)
        self.client = KubeClient(access, clock)
        self.lease = KubeLease(self.client, host, tokens, clock, namespace=about.lease_namespace)
        # A machine-config-controller makes the MachineConfigNodes, so without one there are none.
        conditions = ControlledNodeConditions if controls_node else NodeConditions
        self.conditions = conditions(self.client, name, clock)
        self.events = NodeEvents(self.client, name)
        self.readiness = KubeReadiness(self.client, name, clock)
        self.gates = Gates(self.client, name, controls_node=controls_node)
        self.node = KubeNode(self.client, name, clock, check_lease=self.lease.check, report=report)
        controller = ControllerDrain(
            self.client, name, check_lease=self.lease.check, report=report, policy=lambda: self.node.policy
        )
        # Otherwise the annotations of a drain are between the controller and its own daemon.
        self._either = EitherDrain(self.node, controller) if controls_node else None
        self.use(settings)

    @property
    def drainer(self) -> NodeDrainer:
        return self._either or self.node

    def use(self, settings: Settings) -> None:
        """Apply the settings that may change without a restart, from the next drain on."""
        drain = settings.drain
        order = DrainOrder(drain.first, drain.last)
        self.node.policy = DrainPolicy(drain.unmanaged, drain.local_data, drain.lead_time, order)
        if self._either is not None:
            # With auto, the annotations of the Node decide.
            self._either.controller = {"auto": None, "self": False, "controller": True}[drain.by]

    async def close(self) -> None:
        await self.client.close()
