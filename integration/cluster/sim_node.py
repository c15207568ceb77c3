# SPDX-License-Identifier: Apache-2.0
"""A node of the cluster: the real loop and executor on a host in memory, with everything real that it has of a cluster.

The host is that of ring 1 (`tests/world`), so a test can cut its power or have it boot something else at any moment;
lease, slots, drain and gates are what the daemon has (`nodeagent/features/cluster/backend.py`), on the API server. Each
life of the daemon has a connection and a boot id of its own; the token of the lease is all that it finds of the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from integration.cluster.api import Object
from integration.cluster.cluster import ADMINS, Cluster
from integration.cluster.other_holders import Memory
from nodeagent.agent.loop import Loop
from nodeagent.door import FleetHost, FleetSlots
from nodeagent.features.cluster.backend import Cluster as Side
from nodeagent.features.cluster.decide.drain import Remaining
from nodeagent.features.slots.leases import slots_of
from nodeagent.features.slots.settings import SlotSettings
from nodeagent.host.clock import SystemClock
from nodeagent.kube.client import KubeClient
from nodeagent.kube.credentials import ClusterAccess
from nodeagent.settings.cluster import ClusterSettings
from nodeagent.settings.schema import Settings
from nodeagent.update.next.preflight import Preflight
from nodeagent.update.ports.coordination import Holder, StopGuard
from nodeagent.update.ports.events import FallbackChosen, UpdateWaiting
from nodeagent.update.run import Ports, UpdatePolicy
from nodeagent.update.stages.coordination import Coordination
from nodeagent.update.stages.guard import Guard
from nodeagent.update.stages.os_deployments import HostDeployments
from tests.features.boot_counting.counting import counting
from tests.world import (
    FakeDeployments,
    FakeFiles,
    FakeHealth,
    FakePower,
    FakeReporter,
    FakeStore,
    FakeUnit,
    FakeUnitFiles,
    FakeUnits,
    FakeUsers,
    World,
)
from tests.world.run import LIMITS, Host

QUICK: Final = replace(LIMITS, settle=0.1, verify_timeout=30, lease_retry=0.2, reboot_grace=30, drain_timeout=120)


class WallClock(SystemClock):
    """The host's, ``ahead`` of the machine's. The steady one is the machine's."""

    ahead = timedelta(0)

    def now(self) -> str:
        at = datetime.fromisoformat(super().now()) + self.ahead
        return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class SimNode(Host):
    """``guard`` is that of etcd; None: nothing asks. ``times``: when an update may begin; None: always. ``pool`` "" is
    none."""

    def __init__(
        self,
        cluster: Cluster,
        node: str,
        *,
        pool: str = "",
        slots: int = 1,
        guard: StopGuard | None = None,
        times: Guard | None = None,
        limits: UpdatePolicy = QUICK,
        world: World | None = None,
        on_remaining: Callable[[Sequence[Remaining]], None] = lambda _: None,
        user: str = "members",
    ) -> None:
        names = ("app.service", "web.service", "trust.service")
        super().__init__(world or World(units={name: FakeUnit() for name in names}), limits)
        self.node = node
        self.clock = WallClock()
        self.memory = Memory()
        self.guard = guard
        self.times = times
        self.side: Side | None = None
        self._cluster = cluster
        self._on_remaining = on_remaining
        self._keeping: asyncio.Task[None] | None = None
        self._private = cluster.directory / "private"
        self._private.mkdir(mode=0o700, exist_ok=True)
        kubeconfig = cluster.directory / f"{user}.kubeconfig"
        if not kubeconfig.exists():
            cluster.kubeconfig(user, [ADMINS])
        self._settings = Settings(
            node_name=node,
            cluster=ClusterSettings(kubeconfig=str(kubeconfig)),
            parts=(SlotSettings(pool=pool, max_unavailable=slots),),
        )

    def build(self) -> Loop:
        world, power = self.world, FakePower(self.world)
        clock, access = SystemClock(), ClusterAccess(self._settings.cluster.kubeconfig, private=str(self._private))
        side = self.side = Side(
            self._settings,
            KubeClient(access, clock),
            self.memory,
            clock,
            instance=f"host-of-{self.node}",
            report=self._on_remaining,
        )
        guards = [counting(world), *([self.times] if self.times is not None else []), *self.guards]
        ports = Ports(
            FakeStore(world),
            FakeFiles(world),
            FakeUnits(world),
            FakeUsers(world),
            FakeHealth(world),
            power,
            self.coordination(),
            HostDeployments(FakeDeployments(world), FakeReporter(world), guards) if world.deployments else None,
            side.node,
            self.clock,
            FakeReporter(world),
            FakeUnitFiles(world),
            guards=guards,
        )
        self.loop = Loop(
            ports,
            self.limits,
            Preflight(ports, self.limits, (), self._policy, self.on_drift, self._view),
            desired=self._desired,
            load=self._load,
            adopted=self._adopted,
            random=lambda: 0.5,
            renew=self._renew,
        )
        self._keeping = asyncio.create_task(side.lease.keep())
        return self.loop

    def coordination(self, report: Callable[[Holder | None], None] = lambda _: None) -> Coordination:
        side = self.side
        assert side is not None
        host = FleetHost(settings=self._settings, clock=SystemClock(), host_id=lambda: f"host-of-{self.node}")
        pool = self._settings.of(SlotSettings)
        slots = slots_of(host, side.client, pool) if pool.pool else FleetSlots()
        return Coordination(
            side.lease,
            slot=slots.disrupt,
            staging_slot=slots.stage,
            gates=side.gates,
            guards=[self.guard] if self.guard is not None else (),
            node=side.node,
            report=report,
        )

    async def live(self) -> bool:
        """One life of the daemon: True if it came to rest, False if the host went down. To cancel it is SIGTERM."""
        try:
            return await self._live()
        finally:
            await self.close()

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self.side is not None:
            await self.side.client.close()

    async def settle(self, lives: int = 12) -> None:
        for _ in range(lives):
            if await self.live():
                return
        raise AssertionError(f"no rest after {lives} lives: {self.record}")

    async def reported(
        self, kind: type[UpdateWaiting | FallbackChosen], reason: str = "", timeout: float = 60.0
    ) -> str:
        """Wait until such an event was emitted, and return its message."""
        async with asyncio.timeout(timeout):
            while True:
                for event in self.world.events:
                    if isinstance(event, kind) and reason in ("", event.reason):
                        return event.message
                await asyncio.sleep(0.05)

    def object(self) -> Object:
        found: dict[str, Any] = self._cluster.admin.get(f"/api/v1/nodes/{self.node}")
        return found

    @property
    def cordoned(self) -> bool:
        return bool(self.object()["spec"].get("unschedulable"))

    def outcomes(self) -> list[str]:
        return [entry.outcome for entry in self.world.history]
