"""Who else has a say on this host, as the settings have it: the lease, the slots, the guard of etcd, the cluster.

What is not set up is not imported: neither the official client of Kubernetes nor, before something is disrupted, what
speaks to etcd.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nodeagent.agent.update.run import Fleet
from nodeagent.core.coordination.drain import Remaining
from nodeagent.core.coordination.fleetlock import client_id
from nodeagent.core.update.ports import Clock, Lease, NodeDrainer, Slots
from nodeagent.errors import Terminal
from nodeagent.host.lease import LocalLease
from nodeagent.host.store.store import SqliteStore
from nodeagent.settings.check import check_consistency
from nodeagent.settings.schema import Settings

if TYPE_CHECKING:
    from nodeagent.agent.cluster import Cluster
    from nodeagent.host.etcd.quorum import EtcdGuard
    from nodeagent.host.fleetlock import FleetLock

__all__ = ["Others", "others"]

MACHINE_ID: Final = Path("/etc/machine-id")


@dataclass(frozen=True, slots=True)
class Others:
    """``cluster`` is None on a host without one; then ``node`` is as well, and the lease is a local one."""

    lease: Lease
    node: NodeDrainer | None
    fleet: Fleet
    etcd: Guard
    cluster: Cluster | None = None

    def use(self, settings: Settings) -> None:
        """The settings were read again. What takes a restart was compared before."""
        self.etcd.use(single=settings.etcd.single_member)
        if self.cluster is not None:
            self.cluster.use(settings)

    async def close(self) -> None:
        if self.cluster is not None:
            await self.cluster.close()


def others(
    settings: Settings,
    store: SqliteStore,
    clock: Clock,
    *,
    boot_id: str,
    controls_node: bool,
    tell: Callable[[Sequence[Remaining]], None],
    machine_id: Path = MACHINE_ID,
) -> Others:
    """Blocks: imports, and reads small files. Raises ``InvalidInput`` for settings that contradict each other.
    ``controls_node`` and ``tell`` as in ``Cluster``."""
    check_consistency(settings)
    guard = Guard(clock, single=settings.etcd.single_member)
    if settings.cluster.configured:
        from nodeagent.agent.cluster import Cluster
        from nodeagent.host.token import StoredToken

        cluster = Cluster(
            settings,
            StoredToken(store),
            clock,
            boot_id=boot_id,
            instance=_instance(machine_id),
            controls_node=controls_node,
            tell=tell,
        )
        fleet = Fleet(cluster.slot, cluster.staging_slot, cluster.gates, guard)
        return Others(cluster.lease, cluster.port, fleet, guard, cluster)
    slot = _fleetlock(settings, machine_id) if settings.slots.fleetlock else None
    return Others(LocalLease(store, clock), None, Fleet(slot, None, None, guard), guard)


def _instance(path: Path) -> str:
    """An id of this host from which its machine id cannot be told: everybody may read a lease."""
    try:
        return client_id(path.read_text().strip())
    except (OSError, ValueError) as error:
        raise Terminal(f"{path} has no machine id: {error}", reason="NoMachineId") from error


def _fleetlock(settings: Settings, machine_id: Path) -> Slots:
    from nodeagent.host.fleetlock import FleetLock

    slots = settings.slots
    return FleetLockSlots(
        FleetLock(slots.fleetlock, _instance(machine_id), slots.fleetlock_group, ca=slots.fleetlock_ca)
    )


class FleetLockSlots:
    """Fulfils ``ports.Slots``. The server knows hosts, not operations."""

    def __init__(self, server: FleetLock) -> None:
        self._server = server

    async def acquire(self, holder: str, operation: str, reason: str) -> None:  # noqa: ARG002 - the port's
        await self._server.lock()

    async def check(self, operation: str) -> None:  # noqa: ARG002 - the port's
        await self._server.lock()  # recursive: who has a slot has it still

    async def release(self, operation: str) -> None:  # noqa: ARG002 - the port's
        await self._server.unlock()


class Guard:
    """Fulfils ``ports.Guard``; loaded when it is needed first."""

    def __init__(self, clock: Clock, *, single: bool) -> None:
        self._clock = clock
        self._single = single
        self._loaded: EtcdGuard | None = None
        self._asked: asyncio.Future[Mapping[str, Any]] | None = None

    def use(self, *, single: bool) -> None:
        self._single, self._loaded = single, None

    async def check(self) -> None:
        await (await self._guard()).check()

    async def leave(self) -> None:
        await (await self._guard()).leave()

    async def status(self) -> Mapping[str, Any]:
        """``nodeagent/etcd/v1``. All who ask at the same time get the answer to one survey."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.ensure_future(self._survey())
        return await asyncio.shield(self._asked)

    async def _survey(self) -> Mapping[str, Any]:
        guard = await self._guard()
        from nodeagent.host.etcd.answer import answer

        return answer(await guard.look(), "daemon")

    async def _guard(self) -> EtcdGuard:
        if self._loaded is None:
            self._loaded = await asyncio.to_thread(self._load)
        return self._loaded

    def _load(self) -> EtcdGuard:
        from nodeagent.host.etcd.quorum import EtcdGuard

        return EtcdGuard(self._clock, single=self._single)
