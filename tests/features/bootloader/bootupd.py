# SPDX-License-Identifier: Apache-2.0
"""The port on bootupctl, for the host in memory."""

from __future__ import annotations

from dataclasses import replace

from nodeagent.core.plan.deployment import Deployment, booted
from nodeagent.errors import Terminal
from nodeagent.features.bootloader.decide.check import BootloaderCheck, BootloaderState, BootloaderUpdate
from nodeagent.features.bootloader.decide.secure_boot import KernelTrust
from nodeagent.features.bootloader.guard import BootloaderGuard
from nodeagent.features.bootloader.reasons import BootloaderReason
from nodeagent.features.bootloader.settings import BootloaderSettings
from tests.world.os_host import B_DIGEST, at_old
from tests.world.outages import LocalService
from tests.world.run import Host
from tests.world.world import World


async def host_with(update: BootloaderUpdate, *, brings: int = 2, needs: int = 0) -> Host:
    """A host with version 1 of the bootloader, that will be updated to an OS which ``brings`` and ``needs`` others."""
    host = await at_old()
    host.world.bootloader = 1
    host.world.bootloaders[B_DIGEST] = brings
    host.world.needs[B_DIGEST] = needs
    host.limits = replace(host.limits, verify_timeout=4, settle=2)
    host.guards = [guard_of(host, update)]
    return host


def guard_of(host: Host, update: BootloaderUpdate = BootloaderUpdate.REPORT) -> BootloaderGuard:
    bootloader = LocalService(FakeBootloader(host.world), host.world, "systemd")
    return BootloaderGuard(bootloader, BootloaderSettings(update=update.value))


class FakeBootloader:
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
    return Terminal("synthetic failpoint", reason=BootloaderReason.BOOTLOADER_UPDATE_FAILED)
