# SPDX-License-Identifier: Apache-2.0
"""The bootloader of the host in memory: versions are numbers, and a kernel starts from some version on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nodeagent.core.plan.bootloader import BootloaderCheck, BootloaderState
from nodeagent.core.plan.deployment import Deployment, booted
from nodeagent.core.plan.secure_boot import KernelTrust
from nodeagent.errors import Terminal
from nodeagent.reasons import Reason

if TYPE_CHECKING:
    from tests.world.world import World


@dataclass
class Bootupd:
    bootloader: int = 0  # installed version; 0: no bootupd
    bootloaders: dict[str, int] = field(default_factory=dict)  # image digest to the version that the image brings
    needs: dict[str, int] = field(default_factory=dict)  # image digest to the least version that starts its kernel
    unfit: str = ""  # why the firmware refuses the newer one
    bootloader_unknown: str = ""  # why bootupctl does not report it
    bootloader_call: int = 0  # number of the effect with which its last update began
    bootloader_updates: list[tuple[int, str, bool]] = field(default_factory=list)  # version, lease holder, after boot

    def starts(self, digest: str) -> bool:
        return not self.bootloader or self.bootloader >= self.needs.get(digest, 0)


class FakeBootloader:
    """The port on bootupctl."""

    def __init__(self, world: World) -> None:
        self.world = world

    def _digest(self, staged: Deployment | None) -> str:
        found = staged or booted(self.world.deployments)
        assert found is not None
        return found.digest

    async def check(self, staged: Deployment | None) -> BootloaderCheck | None:
        world = self.world
        world.meet("check bootloader")
        if not world.bootloader:
            return None
        digest = self._digest(staged)
        brings, needed = world.bootloaders.get(digest, world.bootloader), world.needs.get(digest, 0)
        if world.bootloader_unknown:
            return BootloaderCheck(why=world.bootloader_unknown)
        return BootloaderCheck(
            state=BootloaderState.SAME
            if brings == world.bootloader
            else BootloaderState.OLDER
            if brings > world.bootloader
            else BootloaderState.NEWER,
            installed=f"shim-{world.bootloader}",
            available=f"shim-{brings}",
            secure_boot=True,
            kernel=KernelTrust.ACCEPTED if world.bootloader >= needed else KernelTrust.REFUSED,
            kernel_after_update=KernelTrust.ACCEPTED
            if max(brings, world.bootloader) >= needed
            else KernelTrust.REFUSED,
            unfit=world.unfit,
        )

    async def update(self, staged: Deployment | None, *, bios: bool) -> None:
        world, digest = self.world, self._digest(staged)
        world.tick()
        world.bootloader_call = world.calls
        if (fault := world.fault("update bootloader")) is not None:
            # Without an error, bootupctl reports that all is well, and did nothing.
            if fault.error is not None:
                raise fault.error
            return
        version = world.bootloaders.get(digest, world.bootloader)
        if version > world.bootloader:
            world.bootloader = version
            holder = world.holder.name if world.holder is not None else ""
            world.bootloader_updates.append((version, holder, staged is None))
        world.tick()


def broken() -> Terminal:
    return Terminal("synthetic failpoint", reason=Reason.BOOTLOADER_UPDATE_FAILED)
