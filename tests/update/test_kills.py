# SPDX-License-Identifier: Apache-2.0
"""Killed at every single point of an update, in the same boot or with the power cut, and started again.

The fuse of the ``World`` blows before or after the n-th effect; every n that an undisturbed run has is tried.
"""

from __future__ import annotations

import asyncio

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.update.states import Phase
from tests.support.keys import ed25519, sha512
from tests.world import FakeUnit, World, kill_points
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

UNIT = UnitEntry(
    "app.service", "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target x.target\n", enabled=True
)
OLD = config("old", {"/etc/web/x": "1", "/etc/app/x": "1", "/etc/quiet/gone": "1"})
# at least eight steps: two writes, a removal, a unit and its enablement, keys, daemon-reload, reload, two restarts
BUSY = config(
    "busy",
    {"/etc/web/x": "2", "/etc/app/x": "2", "/etc/ca/y": "2"},
    units=[UNIT],
    keys=[ed25519("me")],
    password=sha512("x"),
)
REBOOTING = config("rebooting", {"/etc/web/x": "2", "/etc/unlisted": "2"})


def fresh() -> Host:
    units = {name: FakeUnit() for name in ("app.service", "web.service")}
    units["trust.service"] = FakeUnit(type="oneshot")
    units["app.service"].file = "enabled"
    return Host(World(units=units))


async def at_old() -> Host:
    host = fresh()
    host.want(OLD)
    await host.settle()
    host.world.done.clear()
    host.world.calls = 0
    return host


def assert_converged(host: Host, new: MachineConfig) -> None:
    world = host.world
    assert host.phase is Phase.IDLE, host.record
    assert {p: n for p, n in world.disk.items() if p != "/x"} == expand(new)
    assert world.links == ({"x.target.wants/app.service": "/etc/systemd/system/app.service"} if new is BUSY else {})
    assert host.configs[world.current].name == new.name
    assert world.holder is None
    assert world.snapshots == {}
    # each service runs with what is on the disk now: acted on after the last write, or booted since
    for name in ("app.service", "web.service"):
        for path, node in expand(new).items():
            if path.startswith(f"/etc/{name.split('.')[0]}/"):
                assert world.units[name].read.get(path) == node, f"{name} runs with an old {path}"


async def total_calls(new: MachineConfig) -> int:
    host = await at_old()
    host.want(new)
    await host.settle()
    assert_converged(host, new)
    return host.world.calls


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
@pytest.mark.parametrize("new", [BUSY, REBOOTING], ids=["units", "reboot"])
async def test_killed_at_every_point(new: MachineConfig, power: bool) -> None:
    total = await total_calls(new)
    assert total > 20
    for fuse in kill_points(total, case=power):
        host = await at_old()
        host.want(new)
        await host.kill_at(fuse, power=power)
        await host.settle()
        assert_converged(host, new)
        reboots = host.actions().count("reboot")
        assert reboots <= (1 if new is REBOOTING else 0), f"needless reboot after a kill at call {fuse}"
        done = [entry for entry in host.world.history if entry.to_name == new.name]
        assert len(done) == 1


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point_of_a_revert(power: bool) -> None:
    """The new config is bad for good: whatever happens in between, the old one comes back, with one reboot at most."""

    def picky(world: World) -> None:
        class Picky(FakeUnit):
            @property
            def bad_until_boot(self) -> int:
                node = world.disk.get("/etc/app/x")
                return 99 if node is not None and b"2" in getattr(node, "content", b"") else 0

            @bad_until_boot.setter
            def bad_until_boot(self, value: int) -> None: ...

        world.units["app.service"] = Picky()

    new = config("bad", {"/etc/app/x": "2", "/etc/web/x": "1"})

    async def prepared() -> Host:
        host = await at_old()
        picky(host.world)
        host.want(new)
        return host

    whole = await prepared()
    await whole.settle()
    assert whole.record.reason == "Reverted"
    for fuse in kill_points(whole.world.calls, case=power):
        host = await prepared()
        await host.kill_at(fuse, power=power)
        await host.settle()
        assert host.phase is Phase.DEGRADED, f"fuse {fuse}: {host.record}"
        assert host.world.disk == expand(OLD), f"fuse {fuse}"
        assert host.world.units["app.service"].active == "active"
        assert host.actions().count("reboot") <= 1
        assert host.configs[host.world.current].name == "old"


@settings(max_examples=60)
@given(kills=st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=6))
def test_killed_again_and_again(kills: list[tuple[int, bool]]) -> None:
    async def story() -> None:
        host = await at_old()
        host.want(BUSY)
        for fuse, power in kills:
            host.world.calls = 0
            await host.kill_at(fuse, power=power)
        host.world.fuse = -1
        await host.settle()
        assert_converged(host, BUSY)
        assert host.actions().count("reboot") == 0

    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(story())
    finally:
        loop.close()
        asyncio.set_event_loop(None)
