# SPDX-License-Identifier: Apache-2.0
"""A host in memory in a cluster: lease, slots, node, other actors, etcd, and an API server that can be unreachable.

The ports that disrupt the host check the lease and the slot, in every test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from nodeagent.core.config.file_tree import FileTreeEntry
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.errors import OutOfTurn, Refused, Unreachable
from nodeagent.reasons import Reason
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.system import Confirm, ShutdownKind
from nodeagent.update.run import Ports
from nodeagent.update.stages.coordination import Coordination
from tests.world import FakeFiles, FakeLease, FakePower, FakeUnit, FakeUnits, World
from tests.world.run import Host, config

DURATION = 600.0
PODS = ("db/postgres-0", "web/front-1")
OLD = config("old", {"/etc/app/x": "1", "/etc/web/x": "1"})
RESTART = config("restart", {"/etc/app/x": "2", "/etc/web/x": "1"})
REBOOT = config("reboot", {"/etc/app/x": "2", "/etc/web/x": "1", "/etc/unlisted": "2"})
DRAIN = config("drain", {"/etc/app/x": "1", "/etc/web/x": "1", "/etc/moved": "2"})
"""Drain and a restart, as a policy of the admin's may say."""


@dataclass
class Around:
    """The state of the cluster, which outlives the host."""

    pods: list[str] = field(default_factory=lambda: list(PODS))
    unready_before: str = ""  # why the node is not ready before an update
    unready: str = ""  # and after its actions
    stuck: bool = False  # a budget allows no eviction
    cordon: str | None = None  # who cordoned the node
    late: bool = False  # a drain was given up
    killed: list[str] = field(default_factory=list)  # pods that went down with the host
    slot: str = ""
    staging_slot: str = ""
    hook: bool = False
    gate: Refused | None = None
    guard: Refused | None = None
    busy: Refused | None = None  # pods that must not be stopped
    away_since: float | None = None
    lost: set[str] = field(default_factory=set)  # operations whose lease was taken away
    why_lost: str = "LeaseLost"
    covered: bool = False  # the lease lasts through a boot
    log: list[str] = field(default_factory=list)
    asked: list[tuple[float, str]] = field(default_factory=list)

    def call(self, what: str) -> None:
        self.asked.append((asyncio.get_running_loop().time(), what))
        if self.away_since is not None:
            raise Unreachable("the API server does not answer", reason=Reason.KUBE_UNREACHABLE)

    def go_away(self) -> None:
        self.away_since = asyncio.get_running_loop().time()

    def come_back(self) -> None:
        self.away_since = None


@dataclass
class ClusterHost(Host):
    around: Around = field(default_factory=Around)

    def ports(self) -> Ports:
        world, around = self.world, self.around
        lease = ClusterLease(world, around)
        node = FakeNode(world, around, lease)
        return replace(
            super().ports(),
            files=CheckedFiles(world, around),
            units=CheckedUnits(world, around),
            power=CheckedPower(world, around),
            coordination=Coordination(
                lease,
                slot=FakeSlots(world, around, "slot"),
                staging_slot=FakeSlots(world, around, "staging_slot"),
                gates=FakeGates(world, around),
                guards=[FakeQuorum(world, around)],
                node=node,
            ),
            node=node,
            readiness=FakeReadiness(around),
        )


def holds(world: World, around: Around) -> None:
    assert world.holder is not None, "disrupted without a lease"
    assert world.holder.name == "nodeagent", f"disrupted under {world.holder}"
    assert around.slot == world.holder.operation, "disrupted without a slot"


class ClusterLease(FakeLease):
    backend = "kubernetes"

    def __init__(self, world: World, around: Around) -> None:
        super().__init__(world)
        self.around = around
        self._wrote = False  # by this process: what another one wrote is not known to last

    async def acquire(self, holder: str, operation: str, reason: str) -> None:
        self.around.call("lease")
        if operation in self.around.lost:
            raise Refused("the lease was lost", reason=self.around.why_lost)
        await super().acquire(holder, operation, reason)
        self._wrote = True
        self.around.log.append("lease")

    async def check(self, operation: str, *, need: float = 0.0, offline: bool = False) -> None:
        try:
            self.around.call("lease")
        except Unreachable as fault:
            assert self.around.away_since is not None
            gone = asyncio.get_running_loop().time() - self.around.away_since
            left = DURATION - gone if self._wrote else 0.0
            if left <= 0:
                raise Refused(f"the lease ran out: {fault}", reason=Reason.LEASE_EXPIRED) from fault
            if offline and left >= need:
                return
            raise
        if self.world.holder is None or self.world.holder.operation != operation:
            self.around.lost.add(operation)
        if operation in self.around.lost:
            raise Refused("the lease was lost", reason=self.around.why_lost)
        self._wrote = True

    async def before_reboot(self, operation: str, cover: float) -> None:
        await self.check(operation)
        await super().before_reboot(operation, cover)
        self.around.covered = True

    async def release(self, operation: str) -> None:
        self.around.call("lease")
        if self.world.holder is not None and self.world.holder.operation == operation:
            self.around.log.append("release lease")
        await super().release(operation)

    async def holder(self) -> Holder | None:
        self.around.call("lease")
        return await super().holder()


class FakeSlots:
    def __init__(self, world: World, around: Around, kind: str) -> None:
        self.world, self.around, self.kind = world, around, kind

    async def look(self) -> None:
        self.around.call(self.kind)
        held = getattr(self.around, self.kind)
        if held.startswith("other"):
            raise OutOfTurn(f"1 of 1 slots are held: {held}", reason=Reason.SLOT_HELD)

    async def acquire(self, holder: str, operation: str, reason: str) -> None:
        await self.look()
        self.world.tick()
        setattr(self.around, self.kind, operation)
        self.around.log.append(self.kind)
        self.world.tick()

    async def check(self, operation: str) -> None:
        self.around.call(self.kind)
        if getattr(self.around, self.kind) != operation:
            raise Refused("no slot is held any more", reason=Reason.SLOT_LOST)

    async def release(self, operation: str) -> None:
        self.around.call(self.kind)
        self.world.tick()
        if getattr(self.around, self.kind) == operation:
            setattr(self.around, self.kind, "")
            self.around.log.append(f"release {self.kind}")
        self.world.tick()


class FakeGates:
    def __init__(self, world: World, around: Around) -> None:
        self.world, self.around = world, around

    async def check(self) -> None:
        self.around.call("gates")
        if self.around.gate is not None:
            raise self.around.gate

    async def hold_machine(self) -> None:
        self.around.call("gates")
        self.world.tick()
        self.around.hook = True
        self.world.tick()

    async def free_machine(self) -> None:
        self.around.call("gates")
        self.world.tick()
        self.around.hook = False
        self.world.tick()


class FakeQuorum:
    """The etcd of the node. It answers while the API server does not."""

    def __init__(self, world: World, around: Around) -> None:
        self.world, self.around = world, around

    async def permit_begin(self, work: str, options: Mapping[str, str]) -> None:
        if self.around.busy is not None:
            raise self.around.busy

    async def permit_stop(self) -> None:
        if self.around.guard is not None:
            raise self.around.guard

    async def before_stop(self) -> None:
        self.world.tick()
        await self.permit_stop()


class FakeNode:
    def __init__(self, world: World, around: Around, lease: ClusterLease) -> None:
        self.world, self.around, self.lease = world, around, lease

    async def drain(self, operation: str, deadline: float) -> None:
        self.world.tick()
        around, clock = self.around, asyncio.get_running_loop()
        end = clock.time() + deadline
        around.log.append("drain")
        while True:
            try:
                await self.lease.check(operation)
                around.call("drain")
                if around.cordon is None:
                    around.cordon = operation
                    self.world.tick()
                if not around.pods:
                    self.world.tick()
                    return
                if not around.stuck:
                    around.pods.pop()
                    self.world.tick()
            except Unreachable:
                pass
            if clock.time() >= end:
                around.late = True
                raise Refused(f"not empty after {deadline:g} s: {around.pods}", reason=Reason.DRAIN_TIMED_OUT)
            await asyncio.sleep(3)

    async def uncordon(self, operation: str) -> None:
        self.around.call("uncordon")
        self.world.tick()
        if self.around.cordon == operation:
            self.around.cordon = None
            self.around.pods = list(PODS)
            self.around.log.append("uncordon")
        self.world.tick()

    async def advice(self) -> str:
        return "uncordon it" if self.around.cordon is not None else ""


class FakeReadiness:
    def __init__(self, around: Around) -> None:
        self.around = around

    async def unready(
        self, since: str = "", outdated: Mapping[str, str] | None = None, kept_back: Mapping[str, Decimal] | None = None
    ) -> str:
        self.around.call("readiness")
        return self.around.unready if since else self.around.unready_before


class CheckedFiles(FakeFiles):
    def __init__(self, world: World, around: Around) -> None:
        super().__init__(world)
        self.around = around

    async def install(self, path: str, node: FileTreeEntry) -> Sequence[str]:
        holds(self.world, self.around)
        return await super().install(path, node)

    async def remove(self, path: str, made_dirs: Sequence[str], *, directory: bool = False) -> None:
        holds(self.world, self.around)
        await super().remove(path, made_dirs, directory=directory)


class CheckedUnits(FakeUnits):
    def __init__(self, world: World, around: Around) -> None:
        super().__init__(world)
        self.around = around

    async def restart(self, unit: str, deadline: float, *, since: str | None = None) -> str:
        holds(self.world, self.around)
        return await super().restart(unit, deadline, since=since)


class CheckedPower(FakePower):
    def __init__(self, world: World, around: Around) -> None:
        super().__init__(world)
        self.around = around

    async def shut_down(
        self,
        kind: ShutdownKind,
        why: str,
        *,
        warn: float,
        force: bool,
        confirm: Confirm,
        warned: Callable[[], None],
        direct: bool,
    ) -> None:
        async def checked() -> None:
            around = self.around
            await confirm()
            if kind is ShutdownKind.POWER_OFF:
                return
            holds(self.world, around)
            assert around.guard is None, "rebooted although the guard says no"
            assert around.covered or around.away_since is not None, "others would fence it while it boots"
            assert not around.pods or around.late, "rebooted over pods"
            around.killed += around.pods
            around.covered = False
            around.log.append("reboot")

        await super().shut_down(kind, why, warn=warn, force=force, confirm=checked, warned=warned, direct=direct)


def fresh() -> ClusterHost:
    units = {name: FakeUnit() for name in ("app.service", "web.service")}
    units["trust.service"] = FakeUnit(type="oneshot")
    return ClusterHost(World(units=units))


async def at_old(first: MachineConfig = OLD) -> ClusterHost:
    host = fresh()
    host.want(first)
    await host.settle()
    host.world.done.clear()
    host.world.events.clear()
    host.around.log.clear()
    host.around.asked.clear()
    host.world.calls = 0
    return host


def all_given_back(host: ClusterHost) -> None:
    around = host.around
    assert host.world.holder is None
    assert (around.slot, around.staging_slot, around.cordon, around.hook) == ("", "", None, False)
