# SPDX-License-Identifier: Apache-2.0
"""The text for a boot without an agent: when it is there, and what it names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nodeagent.agent.report.under_way import PATH, RETRY, UnderWayFile
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.report.status import Status
from nodeagent.update.ports.events import DaemonStarted
from nodeagent.update.states import Phase
from tests.world import FakeFiles, World, full_disk

pytestmark = [
    pytest.mark.looptime,
    pytest.mark.finding(
        "attack: configs against the agent",
        "A boot without an agent in the middle of an update reports what is held and how to continue.",
    ),
]


class Scene:
    def __init__(self, world: World) -> None:
        self.world = world
        self.file = UnderWayFile(FakeFiles(world))

    async def at(self, *phases: Phase, backend: str = "local") -> str:
        """Return the text after these phases."""
        for phase in phases:
            self.file.sink(DaemonStarted("1"), Status(phase, desired="worker-8", since="now", backend=backend))
        await asyncio.sleep(0.1)
        node = self.world.disk.get(PATH)
        assert node is None or isinstance(node, RegularFile)
        return "" if node is None else node.content.decode()


@asynccontextmanager
async def scene(world: World | None = None) -> AsyncIterator[Scene]:
    it = Scene(world or World())
    task = asyncio.create_task(it.file.run())
    try:
        yield it
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_is_there_while_an_update_holds_the_node() -> None:
    async with scene() as it:
        assert await it.at(Phase.IDLE, Phase.STAGING, Phase.LEASING) == ""
        text = await it.at(Phase.WRITING, Phase.REBOOTING)
        assert "the update to worker-8 is under way (Rebooting since now)" in text
        assert "systemctl unmask nodeagent; systemctl enable --now nodeagent" in text
        assert "its cordon" in await it.at(Phase.VERIFYING, backend="cluster")
        assert await it.at(Phase.STAGING) != "", "the deployment was lost, and is staged again"
        assert await it.at(Phase.RELEASING, Phase.IDLE) == ""


async def test_it_stays_after_an_update_that_ended_half_way() -> None:
    async with scene() as it:
        assert await it.at(Phase.WRITING, Phase.DEGRADED) != ""
    async with scene(it.world) as it:
        assert await it.at(Phase.DEGRADED) != "", "a restart of the agent decides nothing"
        assert await it.at(Phase.WRITING, Phase.RELEASING, Phase.DEGRADED) == "", "released after a revert"
    async with scene(it.world) as it:
        assert await it.at(Phase.LEASING) == ""


async def test_a_write_that_failed_is_tried_again() -> None:
    async with scene() as it:
        it.world.faults.append(full_disk())
        assert await it.at(Phase.WRITING) == ""
        it.world.repair("install")
        await asyncio.sleep(RETRY + 1)
        assert await it.at() != ""
