# SPDX-License-Identifier: Apache-2.0
"""Updates in a cluster, killed at every single call, also those to the cluster; with the agent alone or the whole host.

The host in memory looks at each write, restart and reboot whether it may (``cluster_host``), in every life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.update.states import Phase
from tests.world import FakeUnit, cluster_host, kill_points, os_host
from tests.world.cluster_host import DRAIN, OLD, REBOOT, RESTART, ClusterHost, all_given_back

pytestmark = [
    pytest.mark.looptime,
    pytest.mark.cluster_failure("the agent crashes during the drain"),
    pytest.mark.cluster_failure("the agent is stopped by its own update"),
]

Make = Callable[[], Awaitable[ClusterHost]]


async def failing() -> ClusterHost:
    """The restart fails in this boot."""
    host = await cluster_host.at_old()
    host.world.units["app.service"] = FakeUnit(bad_until_boot=2)
    return host


async def stuck() -> ClusterHost:
    host = await cluster_host.at_old()
    host.limits = replace(host.limits, drain_timeout=60)
    host.around.stuck = True
    return host


async def with_os() -> ClusterHost:
    world = os_host.os_host().world
    host = ClusterHost(world)
    host.want(os_host.OLD)
    await host.settle()
    host.world.done.clear()
    host.world.calls = 0
    return host


STORIES: dict[str, tuple[Make, MachineConfig, int]] = {
    "restart": (cluster_host.at_old, RESTART, 0),
    "drain and restart": (cluster_host.at_old, DRAIN, 0),
    "drain and reboot": (cluster_host.at_old, REBOOT, 1),
    "fallback": (failing, RESTART, 1),
    "deadline of the drain": (stuck, DRAIN, 1),
    "image": (with_os, os_host.NEW, 1),
}


def assert_done(host: ClusterHost, new: MachineConfig) -> None:
    assert host.phase is Phase.IDLE, host.record
    managed = {path: node for path, node in host.world.disk.items() if path in expand(new)}
    assert managed == expand(new)
    assert host.configs[host.world.current].name == new.name
    all_given_back(host)


@pytest.mark.long
@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
@pytest.mark.parametrize("story", STORIES)
async def test_killed_at_every_point(story: str, power: bool) -> None:
    make, new, reboots = STORIES[story]
    whole = await make()
    whole.want(new)
    await whole.settle()
    assert_done(whole, new)
    assert whole.actions().count("reboot") == reboots
    total = whole.world.calls
    assert total > 20
    for fuse in kill_points(total, case=power):
        host = await make()
        host.want(new)
        await host.kill_at(fuse, power=power)
        await host.settle()
        assert_done(host, new)
        assert host.actions().count("reboot") <= reboots, f"needless reboot after a kill at call {fuse}"
        done = [entry for entry in host.world.history if entry.to_name == new.name]
        assert len(done) == 1


async def test_killed_at_every_point_of_what_is_given_up() -> None:
    """Nothing was written and nothing stays taken, whenever it was killed on the way."""

    async def refused() -> ClusterHost:
        host = await stuck()
        host.limits = replace(host.limits, drain_or_reboot=False)
        host.want(REBOOT)
        return host

    whole = await refused()
    await whole.settle()
    assert whole.record.reason == "DrainTimedOut"
    for fuse in range(1, whole.world.calls + 1):
        host = await refused()
        await host.kill_at(fuse, power=fuse % 2 == 0)
        await host.settle()
        assert (host.phase, host.record.reason, host.world.disk) == (Phase.DEGRADED, "DrainTimedOut", expand(OLD))
        all_given_back(host)


@pytest.mark.long
@settings(max_examples=30)
@given(kills=st.lists(st.tuples(st.integers(1, 80), st.booleans()), max_size=5))
def test_killed_again_and_again(kills: list[tuple[int, bool]]) -> None:
    async def story() -> None:
        host = await cluster_host.at_old()
        host.want(REBOOT)
        for fuse, power in kills:
            host.world.calls = 0
            await host.kill_at(fuse, power=power)
        host.world.fuse = -1
        await host.settle()
        assert_done(host, REBOOT)
        assert host.actions().count("reboot") <= 1

    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(story())
    finally:
        loop.close()
        asyncio.set_event_loop(None)
