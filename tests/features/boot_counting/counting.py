# SPDX-License-Identifier: Apache-2.0
"""The counter of the boot loader of the host in memory, and the guard that uses it."""

from __future__ import annotations

from nodeagent.features.boot_counting.decide import BootCount, BootCounting, CountedBy
from nodeagent.features.boot_counting.guard import BootCountingGuard
from tests.world import World


def counting(world: World) -> BootCountingGuard:
    return BootCountingGuard(FakeBootCounter(world))


class FakeBootCounter:
    def __init__(self, world: World) -> None:
        self.world = world

    async def counting(self) -> BootCounting:
        if self.world.counts:
            return BootCounting(CountedBy.GRUB)
        return BootCounting(why="grub.cfg does not count boots")

    async def read(self) -> BootCount:
        world = self.world
        return BootCount(world.boot_counter, world.counted, world.boot_success) if world.counts else BootCount()

    async def begin(self, deployment: str, tries: int) -> None:
        self.world.tick()
        self.world.meet("write grubenv")
        self.world.boot_counter, self.world.boot_success, self.world.counted = tries, False, deployment
        self.world.tick()

    async def end(self) -> None:
        self.world.tick()
        self.world.meet("write grubenv")
        self.world.boot_success, self.world.boot_counter, self.world.counted = True, None, ""
        self.world.tick()

    async def tries_left(self, deployment: str) -> int | None:
        return None
