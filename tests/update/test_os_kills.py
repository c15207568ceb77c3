# SPDX-License-Identifier: Apache-2.0
"""An OS update killed at every single point, in the same boot or with the power cut.

Whatever happens: the right deployment boots in the end, its /etc holds the right config, services started with that,
nothing is left staged, the lease is free, and the host was not rebooted more often than it had to be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace

import looptime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodeagent.core.config.file_tree import expand
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.deployment import staged
from nodeagent.update.decide import MAX_REBOOT_TRIES
from nodeagent.update.stages.after_boot import MAX_LOST_STAGINGS, MAX_RESTAGINGS
from nodeagent.update.states import Phase
from tests.support.keys import sha512
from tests.world import Fault, Killed, kill_points, os_host
from tests.world.os_host import A_DIGEST, B_DIGEST, FILES, KARGS, NEW, OLD, bad_on, booted_digest, managed, on
from tests.world.run import Host

pytestmark = pytest.mark.looptime

UNIT = UnitEntry("app.service", "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n", enabled=True)
BUSY = on(
    "b", "busy", {"/etc/app/x": "2", "/etc/app/y": "2"}, units=[UNIT], password=sha512("x"), kernel_arguments=("nosmt",)
)
LESS = on("b", "less", {"/etc/app/x": "2"}, kernel_arguments=("nosmt",), absent_arguments=("quiet",))
CASES = {"image and files": NEW, "kernel arguments only": KARGS, "all at once": BUSY, "an argument leaves": LESS}


async def at_old(first: MachineConfig = OLD) -> Host:
    """A host with short timeouts: each second that a loop of the tests skips costs some cycles of it."""
    host = await os_host.at_old(first)
    host.limits = replace(host.limits, verify_timeout=4, settle=2)
    return host


async def kill_at(host: Host, fuse: int, *, power: bool, before: Phase | None = None) -> None:
    """Kill at that call, or when the record is about to have ``before``."""
    host.world.calls = 0
    host.world.fuse = fuse
    if before is not None:
        host.world.faults.append(Fault(f"save {before}", Killed(), times=None))
    try:
        for _ in range(6):  # lives: a reboot that the agent asked for is not the end of the story
            if await host._live():
                break
    except Killed:
        if power:
            host.world.power_cut()
    host.world.fuse = -1
    if before is not None:
        host.world.repair(f"save {before}")


def assert_at(host: Host, wanted: MachineConfig, *others: MachineConfig) -> None:
    world = host.world
    assert managed(world, wanted, *others) == {**expand(wanted)}
    assert host.configs[world.current].name == wanted.name
    assert world.holder is None
    assert world.snapshots == {}
    assert staged(world.deployments) is None
    assert wanted.os_image_url.endswith(booted_digest(world))
    arguments = next(d for d in world.deployments if d.booted).kernel_arguments
    assert len(arguments) == len(set(arguments)), "a retry left a duplicate"
    assert set(arguments) == {"root=LABEL=root", "quiet", *wanted.kernel_arguments} - {*wanted.absent_arguments}
    for path, node in expand(wanted).items():
        if path.startswith("/etc/app/"):
            assert world.units["app.service"].read.get(path) == node, f"app.service runs with an old {path}"


async def undisturbed(new: MachineConfig) -> int:
    host = await at_old()
    host.want(new)
    await host.settle()
    assert_at(host, new, OLD)
    assert host.phase is Phase.IDLE
    assert host.actions() == ["reboot"]
    assert host.world.history[-1].reboots == 1
    return host.world.calls


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
@pytest.mark.parametrize("new", CASES.values(), ids=CASES.keys())
async def test_killed_at_every_point(new: MachineConfig, power: bool) -> None:
    total = await undisturbed(new)
    assert total > 15
    for fuse in kill_points(total, case=power):
        host = await at_old()
        host.want(new)
        await kill_at(host, fuse, power=power)
        await host.settle()
        assert host.phase is Phase.IDLE, f"fuse {fuse}: {host.record}"
        assert_at(host, new, OLD)
        assert host.actions().count("reboot") <= 1, f"needless reboot after a kill at call {fuse}"
        assert [entry.outcome for entry in host.world.history if entry.to_name == new.name] == ["done"]


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point_while_an_argument_is_given_back(power: bool) -> None:
    async def without_it() -> Host:
        host = await at_old()
        host.want(LESS)
        await host.settle()
        assert_at(host, LESS, OLD)
        host.want(OLD)
        return host

    host = await without_it()
    host.world.calls = 0
    await host.settle()
    for fuse in kill_points(host.world.calls, case=power):
        host = await without_it()
        await kill_at(host, fuse, power=power)
        await host.settle()
        assert host.phase is Phase.IDLE, f"fuse {fuse}: {host.record}"
        assert_at(host, OLD, LESS)
        assert not [key for key in host.world.originals if key.startswith("arguments:")]


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point_while_it_is_staged_again(power: bool) -> None:
    """The first finalization does not happen, for an unknown reason: the files are written by then."""

    async def prepared() -> Host:
        host = await at_old()
        host.world.faults.append(Fault("finalize", times=1))
        host.want(BUSY)
        return host

    whole = await prepared()
    await whole.settle()
    assert whole.actions() == ["reboot", "reboot"]
    for fuse in kill_points(whole.world.calls, case=power):
        host = await prepared()
        await kill_at(host, fuse, power=power)
        await host.settle()
        assert host.phase is Phase.IDLE, f"fuse {fuse}: {host.record}"
        assert_at(host, BUSY, OLD)
        assert host.actions().count("reboot") <= 2, f"fuse {fuse}"
        assert [entry.outcome for entry in host.world.history if entry.to_name == "busy"] == ["done"], f"fuse {fuse}"


def bad(host: Host) -> None:
    bad_on(host.world, B_DIGEST)


def bad_and_grub_asks(host: Host) -> None:
    """The old entry would stop at a prompt, so the way back leads into a new deployment of the old tree."""
    bad(host)
    host.world.grub_asks = True


def unfinalized(host: Host) -> None:
    host.world.faults.append(Fault("finalize", OSError("no space left in /boot")))


PLAIN = on("a", "plain", FILES, units=[UNIT])
SAME_FILES = on("b", "same files", FILES, units=[UNIT])


@pytest.mark.finding(
    "OS: GRUB passwords",
    "Where the entry that would become the default asks for a GRUB password, the old tree is deployed once more.",
)
@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
@pytest.mark.parametrize(
    ("trouble", "old", "new", "reboots"),
    [
        (bad, OLD, BUSY, 3),
        (bad, PLAIN, SAME_FILES, 2),
        (bad_and_grub_asks, OLD, BUSY, 3),
        (unfinalized, OLD, BUSY, 2),
        (unfinalized, PLAIN, SAME_FILES, 1),
    ],
    ids=["bad with files", "bad without files", "bad, and GRUB asks", "not finalized", "not finalized, no files"],
)
async def test_killed_at_every_point_of_a_way_back(
    trouble: Callable[[Host], None], old: MachineConfig, new: MachineConfig, reboots: int, power: bool
) -> None:
    async def prepared() -> Host:
        host = await at_old(old)
        trouble(host)
        host.want(new)
        return host

    whole = await prepared()
    await whole.settle()
    assert whole.record.reason == "Reverted"
    assert whole.actions().count("reboot") == reboots
    for fuse in kill_points(whole.world.calls, case=power):
        host = await prepared()
        await kill_at(host, fuse, power=power)
        await host.settle(lives=20)
        if trouble is unfinalized and host.phase is Phase.IDLE:
            continue  # the cut came before the finalization that would have failed, or instead of it
        assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted"), f"fuse {fuse}: {host.record}"
        assert_at(host, old, new)
        assert booted_digest(host.world) == A_DIGEST
        assert host.world.passwords["core"] == "!"
        assert host.actions().count("reboot") <= reboots, f"fuse {fuse}"


@settings(max_examples=60)
@example(kills=[(10, False), (23, False), (4, False), (2, False), (2, False)], good=False)
@given(kills=st.lists(st.tuples(st.integers(1, 45), st.booleans()), max_size=MAX_RESTAGINGS), good=st.booleans())
def test_killed_again_and_again(kills: list[tuple[int, bool]], good: bool) -> None:
    """As many kills as it tries to stage, but for one: after three requests for a reboot that none of them lived to see
    the agent stops asking."""

    async def story() -> None:
        host = await at_old()
        if not good:
            bad(host)
        host.want(BUSY)
        for fuse, power in kills:
            if host.record.phase is Phase.REBOOTING and host.record.reboot_requests == MAX_REBOOT_TRIES - 1:
                continue
            await kill_at(host, fuse, power=power)
        await host.settle(lives=20)
        end = (Phase.IDLE, "") if good else (Phase.DEGRADED, "Reverted")
        assert (host.phase, host.record.reason) == end, host.record
        assert_at(host, *((BUSY, OLD) if good else (OLD, BUSY)))
        assert host.actions().count("reboot") <= (3 if good else 5)
        assert set(host.world.staged_with_lease) <= {"nodeagent"}

    run(story())


async def test_a_cut_before_the_unlock_is_no_miss() -> None:
    """A staged deployment does not survive an unrequested boot: that is expected, and not counted."""
    host = await at_old()
    host.want(BUSY)
    await kill_at(host, 10_000, power=False, before=Phase.REBOOTING)
    assert host.record.phase is Phase.ACTING
    host.world.power_cut()
    host.world.faults.append(Fault("finalize", times=MAX_LOST_STAGINGS))
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.IDLE, "")
    assert_at(host, BUSY, OLD)


def run(story: Coroutine[None, None, None]) -> None:
    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(story)
    finally:
        loop.close()
        asyncio.set_event_loop(None)
