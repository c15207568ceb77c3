# SPDX-License-Identifier: Apache-2.0
"""Boots and reboots of the host in memory, and its systemd-logind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nodeagent.core.boot import identity
from nodeagent.errors import NoSoftReboot, SoftObstacle
from nodeagent.update.ports.system import Confirm, Inhibitor, ShutdownKind
from tests.world.faults import Killed

if TYPE_CHECKING:
    from tests.world.world import World


@dataclass
class Power:
    boot: int = 1
    fips: bool = False  # the kernel runs in FIPS mode
    soft: int = 0  # reboots of the userspace alone, in this boot
    next_root_of_another: bool = False  # another program prepared a soft reboot into another system
    kernel_start: float | None = None  # seconds of firmware and kernel, as systemd knows them
    blockers: list[Inhibitor] = field(default_factory=list)
    logged_in: bool = False  # users who are warned of a shutdown
    warned: int = 0
    done: list[str] = field(default_factory=list)  # unit actions and reboots that really happened, with the boot
    rebooting: asyncio.Event | None = None
    delayed: ShutdownKind | None = None  # accepted before the agent was killed, and delayed by an inhibitor


class FakePower:
    def __init__(self, world: World) -> None:
        self.world = world
        self._boot = identity(f"boot-{world.boot}", world.soft)  # a process sees one boot

    def boot_id(self) -> str:
        return self._boot

    async def blockers(self) -> Sequence[Inhibitor]:
        return list(self.world.blockers)

    @asynccontextmanager
    async def inhibit(self, why: str) -> AsyncIterator[None]:
        yield

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
        self.world.tick()
        if direct and kind is not ShutdownKind.POWER_OFF:
            self.world.done.append(f"{self.world.boot}:reboot.target")
        if self.world.blockers and not force:
            raise AssertionError(f"{kind} over an inhibitor")
        await self._warn(warn, confirm, warned)
        if self.world.fault("ignored reboot"):
            return
        if kind is ShutdownKind.POWER_OFF:
            self.world.done.append(f"{self.world.boot}:power-off")
            self.world.shut_down()
            assert self.world.rebooting is not None
            self.world.rebooting.set()
            await asyncio.Event().wait()  # the host goes down under us
        soft = kind is ShutdownKind.SOFT_REBOOT
        if self.world.fault("power cut"):
            self.world.power_cut()
            raise Killed
        if soft and (fault := self.world.fault("soft reboot")) is not None:
            assert fault.error is not None
            raise fault.error
        self._happens(kind)
        if self.world.fault("no answer to the reboot"):
            await asyncio.Event().wait()  # systemd stops the agent first

    async def going_down(self) -> bool:
        """The delay ends with the first question."""
        self.world.tick()
        if self.world.delayed is None:
            return False
        kind, self.world.delayed = self.world.delayed, None
        self._happens(kind)
        return True

    def _happens(self, kind: ShutdownKind) -> None:
        soft = kind is ShutdownKind.SOFT_REBOOT
        assert not (soft and self.world.next_root_of_another), "started the system of another program"
        self.world.done.append(f"{self.world.boot}:{'soft-' * soft}reboot")
        if soft:
            self.world.soft_reboot()
        else:
            self.world.shut_down()
        assert self.world.rebooting is not None
        self.world.rebooting.set()

    async def kernel_start_seconds(self) -> float | None:
        return self.world.kernel_start

    async def check_soft_reboot(self, *, same_system: bool = True) -> None:
        self.world.tick()
        if (fault := self.world.fault("no soft reboot")) is not None:
            assert fault.error is not None
            raise fault.error
        if same_system and self.world.next_root_of_another:
            raise NoSoftReboot("another system", SoftObstacle.ANOTHER_SYSTEM)

    async def _warn(self, warn: float, confirm: Confirm, warned: Callable[[], None]) -> None:
        if self.world.logged_in:
            self.world.warned += 1
            warned()
            await asyncio.sleep(warn)
        await confirm()
