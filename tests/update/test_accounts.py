# SPDX-License-Identifier: Apache-2.0
"""Users other than core in updates: created, killed at every effect, reverted, expired when they leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.config.machineconfig import Account, FileEntry, UserEntry
from nodeagent.errors import Terminal
from nodeagent.reasons import Reason
from nodeagent.update.ports.host import HostAccount
from nodeagent.update.stages.compare import mismatches
from nodeagent.update.states import Phase
from tests.support.keys import ed25519, sha512
from tests.update.test_directories import at
from tests.world import kill_points
from tests.world.faults import Fault
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

HOME = "/home/alice"
KEYS = f"{HOME}/.ssh/authorized_keys.d/ignition"
HASH = sha512("x")
OLD = config("old", {"/etc/quiet/x": "1"})
ALICE = UserEntry("alice", (ed25519("me"),), HASH, groups=("docker", "wheel"), account=Account())
FILE = FileEntry("/etc/quiet/y", b"2", user="alice", group="alice")
NEW = replace(OLD, name="new", users={"alice": ALICE}, files={**OLD.files, FILE.path: FILE})


def assert_new(host: Host) -> None:
    world = host.world
    assert host.phase is Phase.IDLE
    assert world.accounts["alice"] == HostAccount(1001, HOME, groups=frozenset({"docker", "wheel"}))
    assert world.passwords["alice"] == HASH
    assert not world.unfinished
    assert KEYS in world.disk


def assert_gone(host: Host) -> None:
    world = host.world
    account = world.accounts.get("alice")
    assert account in (None, HostAccount(1001, HOME, expired=True))
    assert world.passwords.get("alice", "!").startswith("!")
    assert KEYS not in world.disk
    assert FILE.path not in world.disk


async def test_a_user_comes_and_expires_and_comes_again() -> None:
    host = await at(NEW, await at(OLD))
    assert_new(host)
    assert host.world.history[-1].disruption == "none"
    assert await mismatches(host.ports(), NEW) == {}
    for _ in range(2):
        await at(OLD, host)
        assert_gone(host)
        assert host.world.accounts["alice"].expired
        assert HOME in host.world.dirs
        await at(NEW, host)
        assert_new(host)


async def test_a_user_of_the_host_stays_one() -> None:
    """What the config gave is taken back: keys, password, and the group in which the user was not."""
    host = await at(OLD)
    host.world.accounts["alice"] = HostAccount(1007, HOME, groups=frozenset({"wheel", "own"}))
    host.world.passwords["alice"] = "own"
    await at(NEW, host)
    assert host.world.accounts["alice"] == HostAccount(1007, HOME, groups=frozenset({"docker", "wheel", "own"}))
    await at(OLD, host)
    assert host.world.accounts["alice"] == HostAccount(1007, HOME, groups=frozenset({"wheel", "own"}))
    assert host.world.passwords["alice"].startswith("!")
    assert KEYS not in host.world.disk


async def test_differences_are_found() -> None:
    host = await at(NEW, await at(OLD))
    world = host.world
    account = world.accounts["alice"]
    for changed, difference in (
        (replace(account, groups=frozenset({"wheel"})), "is not in the group docker"),
        (replace(account, expired=True), "is expired"),
    ):
        world.accounts["alice"] = changed
        assert await mismatches(host.ports(), NEW) == {"user:alice": difference}
    del world.accounts["alice"]
    assert (await mismatches(host.ports(), NEW))["user:alice"] == "is missing"


async def test_an_account_that_is_another_one_is_refused() -> None:
    host = await at(OLD)
    host.world.user_problems["alice"] = "has the uid 7"
    await at(NEW, host)
    assert host.record.to_name != "new" or host.phase is not Phase.IDLE
    assert "alice" not in host.world.accounts
    assert host.world.current == host.add(OLD)


async def test_an_account_that_failed_half_way_is_created_by_the_next_update() -> None:
    host = await at(OLD)
    host.world.faults.append(Fault("user alice", Terminal("no space left", reason=Reason.NO_SPACE)))
    await at(NEW, host)
    assert_gone(host)
    assert host.world.unfinished == {"alice"}
    # The config that failed is not tried again, so it is another one.
    await at(replace(NEW, files=OLD.files), host)
    assert_new(host)
    await at(OLD, host)
    assert_gone(host)


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point(power: bool) -> None:
    whole = await at(OLD)
    whole.world.calls = 0
    await at(NEW, whole)
    for fuse in kill_points(whole.world.calls, case=power):
        host = await at(OLD)
        host.world.calls = 0
        host.want(NEW)
        await host.kill_at(fuse, power=power)
        await host.settle()
        assert_new(host)


@pytest.mark.long
@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point_when_it_leaves(power: bool) -> None:
    whole = await at(NEW, await at(OLD))
    whole.world.calls = 0
    await at(OLD, whole)
    for fuse in kill_points(whole.world.calls, case=power):
        host = await at(NEW, await at(OLD))
        host.world.calls = 0
        host.want(OLD)
        await host.kill_at(fuse, power=power)
        await host.settle()
        assert host.phase is Phase.IDLE
        assert_gone(host)


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point_of_a_revert(power: bool) -> None:
    def broken(host: Host) -> None:
        # Nothing is installed on the way back.
        host.world.faults.append(Fault("install", Terminal("no space left", reason=Reason.NO_SPACE), None))

    whole = await at(OLD)
    whole.world.calls = 0
    broken(whole)
    await at(NEW, whole)
    assert_gone(whole)
    for fuse in kill_points(whole.world.calls, case=power):
        host = await at(OLD)
        host.world.calls = 0
        broken(host)
        host.want(NEW)
        await host.kill_at(fuse, power=power)
        await host.settle()
        assert_gone(host)
