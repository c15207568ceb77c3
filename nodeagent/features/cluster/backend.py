# SPDX-License-Identifier: Apache-2.0
"""The adapters of a node in a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.core.times import add_seconds
from nodeagent.door import BackendHost
from nodeagent.features.cluster.controller_drain import ControllerDrain, EitherDrain
from nodeagent.features.cluster.decide.drain import DrainPolicy, Remaining
from nodeagent.features.cluster.decide.drain_order import DrainOrder
from nodeagent.features.cluster.drain import KubeNode
from nodeagent.features.cluster.events import DrainAdvanced, DrainProgress
from nodeagent.features.cluster.gates import KubeGates
from nodeagent.features.cluster.kubelet_client import kubelet_client
from nodeagent.features.cluster.lease import KubeLease, StoredToken, TokenStore
from nodeagent.features.cluster.node import ControlledNodeConditions, KubeReadiness, NodeConditions
from nodeagent.features.cluster.node_events import NodeEvents
from nodeagent.features.cluster.settings import NodeDrainSettings
from nodeagent.kube.client import KubeClient
from nodeagent.report.parts.registry import disruption_of
from nodeagent.report.status import Status
from nodeagent.settings.cluster import DrainSettings
from nodeagent.settings.schema import Settings
from nodeagent.update.ports.events import Event
from nodeagent.update.ports.host import Clock
from nodeagent.update.states import Phase

_THEN: Final = {"reboot": "the host is rebooted anyway", "abort": "the update is given up and tried again later"}


def backend_of(host: BackendHost, client: KubeClient) -> Cluster:
    # The settings are read at each call, because a reload may replace them while a drain is under way.
    report = drain_reporter(host.reporter.emit, host.shown, lambda: cluster.settings.drain)
    tokens = StoredToken(host.store)
    cluster = Cluster(host.settings, client, tokens, host.clock, instance=host.host_id(), report=report)
    return cluster


class Cluster:
    """Implements ``ports.Backend``. Nothing is requested before it is needed, so that a daemon starts and resumes an
    update while the API server is down. ``report`` receives the remaining pods after each round of a drain."""

    def __init__(
        self,
        settings: Settings,
        client: KubeClient,
        tokens: TokenStore,
        clock: Clock,
        *,
        instance: str,
        report: Callable[[Sequence[Remaining]], None],
    ) -> None:
        about, name = settings.cluster, settings.node_name
        self.name = name
        self.client = client
        # As in ``core.coordination.gates.node_gates``.
        self.controls_node = controls_node = about.source == "cluster"
        identity = HostIdentity(name, instance)
        self.lease = KubeLease(client, identity, tokens, clock, namespace=about.lease_namespace)
        # A machine-config-controller makes the MachineConfigNodes, so without one there are none.
        conditions = ControlledNodeConditions if controls_node else NodeConditions
        self.conditions = conditions(client, name, clock)
        self.events = NodeEvents(client, name)
        self.readiness = KubeReadiness(client, name, clock)
        self.gates = KubeGates(client, name, controls_node=controls_node)
        self.drains = KubeNode(
            client,
            name,
            clock,
            check_lease=self.lease.check,
            report=report,
            evictor=lambda: kubelet_client(self.settings.of(NodeDrainSettings).kubeconfig, clock),
        )
        controller = ControllerDrain(
            client, name, check_lease=self.lease.check, report=report, policy=lambda: self.drains.policy
        )
        # Otherwise the annotations of a drain are between the controller and its own daemon.
        self._either = EitherDrain(self.drains, controller) if controls_node else None
        self.node = self._either or self.drains
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Apply the settings that may change without a restart, from the next drain on."""
        self.settings = settings
        drain = settings.of(NodeDrainSettings)
        order = DrainOrder(drain.first, drain.last)
        self.drains.policy = DrainPolicy(drain.unmanaged, drain.local_data, drain.lead_time, order)
        if self._either is not None:
            # With auto, the annotations of the Node decide.
            self._either.controller = {"auto": None, "self": False, "controller": True}[drain.by]


def drain_reporter(
    emit: Callable[[Event], None], shown: Callable[[], Status], settings: Callable[[], DrainSettings]
) -> Callable[[Sequence[Remaining]], None]:
    """Return the callback of the drain, which reports the remaining pods, the deadline and what follows after it."""

    def report_remaining(remaining: Sequence[Remaining]) -> None:
        status, present = shown(), settings()
        disruption = disruption_of(status)
        if disruption is not None and status.phase is not Phase.DRAINING:
            by, then = disruption.drain_by, disruption.then
        else:
            by, then = add_seconds(status.since, present.timeout), _THEN[present.on_deadline]
        # Each poll reports, but only a change of the number is a line of the journal.
        before = status.part(DrainProgress)
        routine = before is not None and len(before.remaining) == len(remaining)
        emit(DrainAdvanced(remaining, by, then, routine))

    return report_remaining
