"""What the daemon has of a cluster: one connection, and everything on it that concerns this node.

Imported only where a cluster is configured: below it is the official client. Nothing here asks the API server before
something is used, so a daemon starts, and goes on with what it was doing, while that is away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from nodeagent.agent.cluster_source import ClusterConfigSource, warn
from nodeagent.agent.report.report import Report
from nodeagent.core.config.machineconfig import ConfigSource
from nodeagent.core.coordination.drain import DrainPolicy, Remaining
from nodeagent.core.coordination.lease import HostIdentity
from nodeagent.core.coordination.slots import Kind, SlotPool
from nodeagent.core.update.ports import Clock, NodeDrainer
from nodeagent.kube.client import KubeClient
from nodeagent.kube.conditions import NodeConditions
from nodeagent.kube.credentials import Access
from nodeagent.kube.drain import KubeNode
from nodeagent.kube.events import NodeEvents
from nodeagent.kube.gates import Gates
from nodeagent.kube.handshake import ConfigMemory, Handshake
from nodeagent.kube.lease import KubeLease, TokenStore
from nodeagent.kube.mco_drain import ControllerDrain, EitherDrain
from nodeagent.kube.slots import KubeSlots
from nodeagent.settings.cluster import DrainSettings
from nodeagent.settings.schema import Settings

__all__ = ["Cluster"]


class Cluster:
    """The connection to the API server and everything on it that concerns this node.

    ``instance`` distinguishes this host from another one of the same node name. ``controls_node`` as in
    ``core.coordination.gates.node_gates``. ``tell`` receives the remaining pods after each round of a drain.
    """

    def __init__(
        self,
        settings: Settings,
        tokens: TokenStore,
        clock: Clock,
        *,
        boot_id: str,
        instance: str,
        controls_node: bool,
        tell: Callable[[Sequence[Remaining]], None],
        private: str = "/run/nodeagent",
    ) -> None:
        about, slots, name = settings.cluster, settings.slots, settings.node_name
        access = Access(about.kubeconfig, private=private)
        if about.service_account:
            access = Access(private=private, service_account=Path(about.service_account))
        self.name = name
        host = HostIdentity(name, instance)
        self.client = KubeClient(access, clock)
        self.lease = KubeLease(self.client, host, tokens, clock, boot_id, namespace=about.lease_namespace)
        self.conditions = NodeConditions(self.client, name, clock)
        self.events = NodeEvents(self.client, name)
        self.gates = Gates(self.client, name, controls_node=controls_node)
        self.node = KubeNode(
            self.client, name, clock, still_ours=self.lease.check, tell=tell, policy=drain_policy(settings.drain)
        )
        # Elsewhere those annotations are between the controller and its own daemon.
        theirs = ControllerDrain(
            self.client, name, still_ours=self.lease.check, tell=tell, policy=lambda: self.node.policy
        )
        self._either = EitherDrain(self.node, theirs, controller=drained_by(settings.drain)) if controls_node else None

        def pool(kind: Kind, count: int) -> KubeSlots | None:
            if not slots.pool or not count:
                return None
            return KubeSlots(self.client, host, SlotPool(slots.pool, kind, count), clock)

        self.slot = pool(Kind.DISRUPT, slots.max_unavailable)
        self.staging_slot = pool(Kind.STAGE, slots.max_staging)

    @property
    def port(self) -> NodeDrainer:
        """Whoever empties the node."""
        return self._either or self.node

    def ordered(
        self,
        memory: ConfigMemory,
        report: Report,
        changed: Callable[[bool], None],
        requested: Callable[[ConfigSource], Awaitable[None]],
    ) -> ClusterConfigSource | None:
        """None where the desired config does not come from here. The last two as in ``Handshake``."""
        if self._either is None:
            return None
        trouble = partial(warn, report)
        return ClusterConfigSource(
            Handshake(self.client, self.name, memory, changed=changed, requested=requested, trouble=trouble)
        )

    def use(self, settings: Settings) -> None:
        """What may change without a restart, from the next drain on."""
        self.node.policy = drain_policy(settings.drain)
        if self._either is not None:
            self._either.controller = drained_by(settings.drain)

    async def run(self) -> None:
        """For as long as the daemon lives: what is held stays held."""
        await self.lease.keep()

    async def close(self) -> None:
        await self.client.close()


def drained_by(settings: DrainSettings) -> bool | None:
    """Whether it is a controller; None for whoever is there."""
    return {"auto": None, "self": False, "controller": True}[settings.by]


def drain_policy(settings: DrainSettings) -> DrainPolicy:
    return DrainPolicy(unmanaged=settings.unmanaged, local_data=settings.local_data)
