# SPDX-License-Identifier: Apache-2.0
"""Runs a loop over a ``World`` as a host would: starts it, lets it be killed or rebooted, and starts it again."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodeagent.agent.loop import Loop
from nodeagent.core.config.machineconfig import ConfigSource, FileEntry, MachineConfig, UnitEntry, UserEntry, meaning
from nodeagent.core.plan.change import PolicySource
from nodeagent.core.plan.policy import DAEMON_RELOAD, DRAIN, NONE, Entry, Policy, reload, restart
from nodeagent.core.plan.sides import HostView
from nodeagent.core.plan.steps import ActStep
from nodeagent.domains import default_policy
from nodeagent.host.store.record_codec import record_from_dict
from nodeagent.update.machine import Work
from nodeagent.update.next.preflight import Desired, OnDrift, Preflight
from nodeagent.update.ports.events import PhaseEntered
from nodeagent.update.ports.host import Validator
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.record import Record
from nodeagent.update.run import Ports, UpdatePolicy
from nodeagent.update.stages.coordination import Coordination
from nodeagent.update.stages.guard import Guard
from nodeagent.update.stages.os_deployments import HostDeployments
from nodeagent.update.states import Phase
from tests.world import (
    FakeBootedSystem,
    FakeClock,
    FakeDeployments,
    FakeFiles,
    FakeHealth,
    FakeLease,
    FakePower,
    FakeReporter,
    FakeStore,
    FakeUnitFiles,
    FakeUnits,
    FakeUsers,
    Killed,
    LocalService,
    World,
)

POLICY = Policy(
    files={
        "/etc/quiet": Entry("/etc/quiet", (NONE,)),
        "/etc/moved": Entry("/etc/moved", (DRAIN, restart("app.service"))),
        "/etc/app": Entry("/etc/app", (restart("app.service"),), PolicySource.USER),
        "/etc/web": Entry("/etc/web", (reload("web.service"),)),
        "/etc/ca": Entry("/etc/ca", (restart("trust.service"), restart("app.service"))),
    },
    units={"app.service": Entry("app.service", (DAEMON_RELOAD, restart("app.service")))},
    sshkey=Entry("sshkey", (NONE,)),
    fields=default_policy().fields,
)

LIMITS = UpdatePolicy(action_timeout=30, settle=5, verify_timeout=60, inhibitor_wait=120, reboot_grace=60, warn_users=0)


def change_work(loop: Loop, change: Callable[[Phase, Work], Work]) -> None:
    """The work of each phase becomes what ``change`` makes of it."""
    loop.executor.work = {state: change(state[1], work) for state, work in loop.executor.work.items()}


@dataclass
class Host:
    """A host and the agent on it. ``configs`` by digest replace the parser, which has its own tests."""

    world: World = field(default_factory=World)
    limits: UpdatePolicy = LIMITS
    on_drift: OnDrift = "refuse"
    configs: dict[str, MachineConfig] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    wanted: str = ""
    loop: Loop | None = None
    guards: Sequence[Guard] = ()
    view: HostView = field(default_factory=HostView)
    policy: Policy = POLICY
    validators: Sequence[Validator] = ()
    from_cluster: bool = False
    renewed: list[tuple[ActStep, Phase]] = field(default_factory=list)  # what was asked of our own unit, and when

    def want(self, config: MachineConfig, rendering: str = "") -> None:
        """Set the desired config. ``rendering`` is a part of its text without a meaning for a host."""
        self.wanted = self.add(config, rendering)
        if self.loop is not None:
            self.loop.look_again()

    def add(self, config: MachineConfig, rendering: str = "") -> str:
        """Make a config known and return its digest."""
        text = f"{config!r}{config.name}{rendering}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        self.configs[digest] = config
        self.texts[digest] = text
        return digest

    async def _load(self, digest: str) -> Desired:
        config = self.configs[digest]
        return Desired(ConfigSource(config.name, digest, b""), config)

    async def _desired(self) -> Desired | None:
        return await self._load(self.wanted) if self.wanted else None

    async def _policy(self, *_: MachineConfig) -> Policy:
        return self.policy

    async def _view(self, *_: MachineConfig) -> HostView:
        return self.view

    async def _renew(self, step: ActStep) -> None:
        self.renewed.append((step, self.phase))

    async def _adopted(self) -> Desired | None:
        return None

    def ports(self) -> Ports:
        world = self.world
        return Ports(
            FakeStore(world),
            FakeFiles(world),
            LocalService(FakeUnits(world), world, "systemd"),
            FakeUsers(world),
            FakeHealth(world),
            LocalService(FakePower(world), world, "systemd-logind"),
            Coordination(FakeLease(world)),
            HostDeployments(
                LocalService(FakeDeployments(world), world, "rpm-ostreed"),
                FakeReporter(world),
                self.guards,
            )
            if world.deployments
            else None,
            None,
            FakeClock(world),
            FakeReporter(world),
            FakeUnitFiles(world),
            guards=self.guards,
            system=FakeBootedSystem(world),
        )

    def build(self) -> Loop:
        return self.build_with(self.ports())

    def build_with(self, ports: Ports) -> Loop:
        preflight = Preflight(ports, self.limits, self.validators, self._policy, self.on_drift, self._view)
        self.loop = Loop(
            ports,
            self.limits,
            preflight,
            desired=self._desired,
            load=self._load,
            adopted=self._adopted,
            random=lambda: 0.5,
            renew=self._renew,
            complete=(lambda name: name.startswith("rendered-")) if self.from_cluster else None,
        )
        return self.loop

    async def _live(self) -> bool:
        """One life of the daemon. True if it came to rest, False if the host went down under it."""
        loop = self.build()
        self.world.rebooting = asyncio.Event()

        async def work() -> None:
            await loop.resume()
            patience = 1 if self.world.outage is None else 120
            while (delay := await loop.turn()) is not None and delay < patience:
                await asyncio.sleep(delay)

        life = asyncio.create_task(work())
        death = asyncio.create_task(self.world.rebooting.wait())
        try:
            await asyncio.wait({life, death}, return_when=asyncio.FIRST_COMPLETED)
            if life.done():
                life.result()
                return True
        finally:
            for task in (life, death):
                task.cancel()
            await asyncio.gather(life, death, return_exceptions=True)
        await loop.stopping()  # as the daemon does; systemd stops it before it finalizes anything
        return False

    async def ask(self, loop: Loop | None = None, *, avoid: str = "") -> None:
        """Request the desired config as an operator does, maybe away from another one, until the host is at rest."""
        loop = loop or self.build()
        async with loop.recorded(self.request(avoid=avoid)):
            pass
        await self.turn_and_settle(loop)

    def requested(self, loop: Loop) -> None:
        self.world.request = self.request()
        loop.look_again()

    def request(self, *, avoid: str = "") -> ApplyRequest:
        """Return the request for the desired config."""
        return ApplyRequest(self.wanted, avoid, meaning(self.configs[avoid]) if avoid else "")

    async def turn_and_settle(self, loop: Loop) -> None:
        """Run one turn of that process up to its end or a reboot, then settle."""
        self.world.rebooting = asyncio.Event()
        asked, down = asyncio.create_task(loop.turn()), asyncio.create_task(self.world.rebooting.wait())
        await asyncio.wait({asked, down}, return_when=asyncio.FIRST_COMPLETED)
        for task in (asked, down):
            task.cancel()
        await asyncio.gather(asked, down, return_exceptions=True)
        await self.settle()

    async def settle(self, lives: int = 12) -> None:
        """Run until the daemon has nothing left to do, through kills and reboots."""
        for _ in range(lives):
            try:
                if await self._live():
                    return
            except Killed:
                continue
        raise AssertionError(f"no rest after {lives} lives: {self.record}")

    async def kill_at(self, fuse: int, *, power: bool) -> bool:
        """Run one life of the daemon that ends at this effect, with the power cut as well if ``power`` is true.

        Return whether the life was long enough for that.
        """
        self.world.fuse = fuse
        try:
            if await self._live():
                return False
        except Killed:
            pass
        blew = self.world.calls >= fuse
        self.world.fuse = -1
        if blew and power:
            self.world.power_cut()
        return blew

    @property
    def record(self) -> Record:
        return record_from_dict(self.world.record)

    @property
    def phase(self) -> Phase:
        return self.record.phase

    def actions(self) -> list[str]:
        return [entry.partition(":")[2] for entry in self.world.done]


def config(
    name: str,
    files: dict[str, str] | None = None,
    units: Iterable[UnitEntry] = (),
    keys: Iterable[str] = (),
    password: str | None = None,
    **os: Any,
) -> MachineConfig:
    user = {"core": UserEntry("core", tuple(keys), password)} if keys or password else {}
    return MachineConfig(
        name,
        files={path: FileEntry(path, text.encode()) for path, text in (files or {}).items()},
        units={unit.name: unit for unit in units},
        users=user,
        **os,
    )


def kinds(host: Host, kind: type[Any]) -> list[str]:
    """Return the reasons, or else the messages, of the events of this kind."""
    return [event.reason or event.message for event in host.world.events if isinstance(event, kind)]


def phases(host: Host) -> list[str]:
    """Return the phases in order. Events that change the message of a phase do not count."""
    entered = [str(event.about.phase) for event in host.world.events if isinstance(event, PhaseEntered)]
    return [phase for phase, _ in itertools.groupby(entered)]


async def until(host: Host, phase: Phase) -> None:
    """Wait until the record has this phase."""
    while host.phase is not phase:
        await asyncio.sleep(0.2)
