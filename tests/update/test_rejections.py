# SPDX-License-Identifier: Apache-2.0
"""A config that failed here is known by what it means, and is applied again on request only."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.host.store.record_codec import record_to_dict
from nodeagent.update.history.lasting import REBOOTS, WINDOW, Budget, Lasting, Rejection
from nodeagent.update.ports.events import ConfigRefused
from nodeagent.update.states import Phase
from tests.agent.test_api import api
from tests.world import FakeUnit, World, cluster_host
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

GOOD = config("good", {"/etc/app/x": "1"})


def bad(number: int = 2, name: str = "bad") -> MachineConfig:
    return config(name, {"/etc/app/x": f"bad {number}"})


class Picky(FakeUnit):
    """Does not run with a file that says that it is bad."""

    world: World

    @property
    def bad_until_boot(self) -> int:
        node = self.world.disk.get("/etc/app/x")
        return 99 if isinstance(node, RegularFile) and node.content.startswith(b"bad") else 0

    @bad_until_boot.setter
    def bad_until_boot(self, value: int) -> None: ...


async def started() -> Host:
    world = World()
    unit = Picky()
    unit.world = world
    world.units = {"app.service": unit}
    host = Host(world)
    host.want(GOOD)
    await host.settle()
    assert host.phase is Phase.IDLE
    return host


def reboots(host: Host) -> int:
    return host.actions().count("reboot")


def outcomes(host: Host) -> list[tuple[str, str]]:
    return [(entry.to_name, entry.outcome) for entry in host.world.history[1:]]


@pytest.mark.finding(
    "updates: budget of fallback reboots", "Another rendering of a config that failed is not applied again."
)
async def test_another_rendering_of_what_failed_costs_no_reboot() -> None:
    host = await started()
    for rendering in range(4):
        host.want(bad(), f"renderedAt: {rendering}")
        await host.settle()
        await host.settle()
    assert reboots(host) == 1
    assert outcomes(host) == [("bad", "reverted")]
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "ConfigRejected")
    assert "app.service" in host.record.message
    assert host.world.holder is None
    refused = [event for event in host.world.events if isinstance(event, ConfigRefused)]
    assert {event.reason for event in refused} == {"ConfigRejected"}


async def test_another_name_is_no_other_config() -> None:
    host = await started()
    host.want(bad(name="rendered-worker-1"))
    await host.settle()
    host.want(bad(name="rendered-worker-2"))
    await host.settle()
    assert (reboots(host), host.record.to_name) == (1, "rendered-worker-2")
    assert "failed on this host as rendered-worker-1 at 2026-01-01T00:00:02" in host.record.message


@pytest.mark.finding("updates: budget of fallback reboots", "Two bad configs that alternate cost one reboot each.")
async def test_two_bad_configs_that_alternate_cost_a_reboot_each() -> None:
    host = await started()
    for rendering in range(4):
        for number in (1, 2):
            host.want(bad(number, f"bad-{number}"), str(rendering))
            await host.settle()
    assert reboots(host) == 2
    assert outcomes(host) == [("bad-1", "reverted"), ("bad-2", "reverted")]
    assert host.record.reason == "ConfigRejected"


async def test_a_good_config_in_between_makes_no_difference() -> None:
    host = await started()
    for number in range(4):
        host.want(bad(), str(number))
        await host.settle()
        host.want(config(f"good-{number}", {"/etc/app/x": str(number)}))
        await host.settle()
        assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, f"good-{number}")
    assert reboots(host) == 1
    host.want(bad(), "last")
    await host.settle()
    assert (host.phase, host.record.reason, reboots(host)) == (Phase.DEGRADED, "ConfigRejected", 1)


async def test_going_back_to_the_current_config_makes_no_difference() -> None:
    host = await started()
    for number in range(4):
        host.want(bad(), str(number))
        await host.settle()
        host.want(GOOD)
        await host.settle()
        assert (host.phase, host.record.reason) == (Phase.IDLE, "")
    assert reboots(host) == 1


async def test_on_request_it_is_applied_once_more() -> None:
    host = await started()
    host.want(bad(), "first")
    await host.settle()
    host.want(bad(), "second")
    await host.ask()
    assert (reboots(host), host.record.reason) == (2, "Reverted")
    await host.settle()
    host.want(bad(), "third")
    await host.settle()
    assert reboots(host) == 2
    host.world.units["app.service"] = FakeUnit()
    await host.ask()
    assert (host.phase, host.record.lasting.rejections) == (Phase.IDLE, ())
    assert host.world.history[-1].outcome == "done"


@pytest.mark.finding(
    "updates: budget of fallback reboots",
    "Fallback reboots have a budget over all updates; beyond it a failure is reverted without one.",
)
async def test_ever_new_bad_configs_do_not_reboot_a_host_without_bound() -> None:
    host = await started()
    for number in range(REBOOTS + 3):
        host.want(bad(number, f"bad-{number}"))
        await host.settle()
        assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted")
    assert reboots(host) == REBOOTS
    last = host.world.history[-1]
    assert (last.outcome, last.reboots, last.reason) == ("reverted", 0, "RebootBudgetSpent")
    assert "restart app.service" in last.message
    assert f"not rebooted: there were {REBOOTS} fallback reboots in 24 h" in last.message
    assert host.world.disk["/etc/app/x"] == RegularFile(b"1")
    assert host.world.units["app.service"].active == "active"
    await asyncio.sleep(WINDOW)
    await host.ask()
    assert reboots(host) == REBOOTS + 1, "a day later there is room, also for what failed"


async def test_without_a_revert_and_a_budget_the_host_is_degraded() -> None:
    host = await started()
    host.limits = replace(host.limits, revert=False)
    for number in range(REBOOTS + 1):
        host.want(bad(number, f"bad-{number}"))
        await host.settle()
    assert (host.phase, host.record.reason, reboots(host)) == (Phase.DEGRADED, "RebootBudgetSpent", REBOOTS)


async def test_a_planned_reboot_needs_no_budget() -> None:
    host = await started()
    host.world.record = record_to_dict(replace(host.record, lasting=Lasting(budget=Budget(spent=(0.0,) * REBOOTS))))
    host.want(config("planned", {"/etc/app/x": "1", "/etc/unlisted": "1"}))
    await host.settle()
    assert (host.phase, reboots(host)) == (Phase.IDLE, 1)
    assert not host.record.lasting.budget.left


@pytest.mark.parametrize("spent", [0, REBOOTS])
async def test_a_drain_that_is_late_reboots_within_the_budget_only(spent: int) -> None:
    host = await cluster_host.at_old()
    host.around.stuck = True
    host.world.record = record_to_dict(replace(host.record, lasting=Lasting(budget=Budget(spent=(0.0,) * spent))))
    host.want(cluster_host.DRAIN)
    host.world.rebooting = asyncio.Event()
    task = asyncio.create_task(host.build().turn())
    while host.phase in (Phase.IDLE, Phase.LEASING, Phase.DRAINING, Phase.RELEASING):
        await asyncio.sleep(60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if spent:
        assert (host.phase, host.record.reason) == (Phase.DEGRADED, "DrainTimedOut")
        assert "fallback reboots in 24 h" in host.record.message
        assert (host.actions(), "/etc/moved" in host.world.disk) == ([], False)
        cluster_host.all_given_back(host)
        assert not host.record.lasting.budget.left
    else:
        assert host.actions() == ["reboot"]


async def test_a_half_way_host_stays_as_it_is() -> None:
    host = await started()
    host.limits = replace(host.limits, revert=False)
    host.want(bad(), "first")
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "UnitUnhealthy")
    host.want(bad(), "second")
    await host.settle()
    assert (reboots(host), host.record.reason) == (1, "UnitUnhealthy")
    assert host.world.holder is not None
    host.want(GOOD)
    await host.settle()
    assert (host.phase, host.world.holder) == (Phase.IDLE, None)


async def test_what_was_rolled_back_from_does_not_come_back_in_another_rendering() -> None:
    host = await started()
    host.want(new := config("new", {"/etc/app/x": "2"}))
    await host.settle()
    digest = host.world.current
    host.want(GOOD)
    assert host.loop is not None
    await host.ask(host.loop, avoid=digest)
    assert host.configs[host.world.current].name == "good"
    host.want(new, "second")
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "RolledBack")
    await host.ask()
    assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, "new")


# --- what a plan says about it


@pytest.mark.finding(
    "users: units that exist nowhere", "A plan of a config that this host took back says when and why."
)
@pytest.mark.parametrize("rendering", ["", "renderedAt: 5"])
async def test_a_plan_of_a_config_that_failed_says_so(rendering: str) -> None:
    host = await started()
    host.want(bad())
    await host.settle()
    digest = host.add(bad(name="bad"), rendering) if rendering else host.wanted
    answer = json.loads(await api(host).plan(digest))
    assert answer["rejected"]["reason"] == "ConfigRejected"
    assert answer["rejected"]["since"].startswith("2026-")
    assert "app.service" in answer["rejected"]["why"]
    assert f"bad failed on this host at {answer['rejected']['since']}" in answer["notes"][0]
    other = json.loads(await api(host).plan(host.add(config("other", {"/etc/app/x": "3"}))))
    assert "rejected" not in other


@pytest.mark.finding(
    "users: units that exist nowhere", "A plan of a config whose update an operator cancelled says so."
)
async def test_a_plan_of_a_config_that_was_cancelled_says_so() -> None:
    host = await started()
    digest = host.add(bad())
    lasting = Lasting(rejections=(Rejection(digest, name="bad", why="cancelled by root", reason="Cancelled"),))
    host.world.record = record_to_dict(replace(host.record, lasting=lasting))
    answer = json.loads(await api(host).plan(digest))
    assert answer["rejected"]["reason"] == "Cancelled"
    assert "the update to bad was cancelled by root" in answer["notes"][0]


@pytest.mark.finding("users: units that exist nowhere", "A plan of a config that an operator rolled back says so.")
@pytest.mark.parametrize("rendering", ["", "renderedAt: 5"])
async def test_a_plan_of_a_config_that_was_rolled_back_says_so(rendering: str) -> None:
    host = await started()
    old = host.wanted
    new = config("new", {"/etc/app/x": "2"})
    host.want(new)
    await host.settle()
    taken_back, host.wanted = host.wanted, old
    await host.ask(host.loop, avoid=taken_back)
    digest = host.add(new, rendering) if rendering else taken_back
    answer = json.loads(await api(host).plan(digest))
    assert answer["rejected"]["reason"] == "RolledBack"
    assert "the update to new was rolled back by an operator; nodeagent apply tries it again" in answer["notes"][0]
    assert "rejected" not in json.loads(await api(host).plan(old))
