# SPDX-License-Identifier: Apache-2.0
"""Success of a unit, by the report of systemd and by its state before the update."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.policy import DAEMON_RELOAD, NONE, Entry, Policy, restart
from nodeagent.update.ports.events import StepSkipped, UpdateDone
from nodeagent.update.states import Phase
from tests.world import FakeUnit, World
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

A = config("a", {"/etc/app/x": "1", "/etc/quiet/q": "1"})
B = config("b", {"/etc/app/x": "2", "/etc/quiet/q": "1"})
CONDITION = "ConditionPathExists=/etc/site/enabled"


async def updated(unit: FakeUnit) -> Host:
    """A host after an update from ``a`` to ``b``, which restarts app.service."""
    host = Host(World(units={"app.service": FakeUnit()}))
    host.want(A)
    await host.settle()
    host.world.done.clear()
    host.world.events.clear()
    host.world.units["app.service"] = unit
    host.want(B)
    await host.settle()
    return host


@pytest.mark.parametrize("active", ["inactive", "active"])
async def test_an_unmet_start_condition_is_skipped_and_not_a_failure(active: str) -> None:
    host = await updated(FakeUnit(active=active, condition=CONDITION))
    assert (host.phase, host.actions()) == (Phase.IDLE, ["restart app.service"])
    entry = host.world.history[-1]
    assert (entry.outcome, entry.reboots) == ("done", 0)
    assert entry.message == f"restart app.service skipped, start condition {CONDITION} of app.service is not met"
    (event,) = (event for event in host.world.events if isinstance(event, StepSkipped))
    assert (event.reason, CONDITION in event.message) == ("ConditionNotMet", True)
    (done,) = (event for event in host.world.events if isinstance(event, UpdateDone))
    assert CONDITION in done.message


@pytest.mark.finding("units: start conditions", "A unit that did not run before the update need not run after it.")
@pytest.mark.parametrize(
    "unit",
    [
        FakeUnit(active="inactive", fail_restarts=99),
        FakeUnit(active="failed", fail_restarts=99),
        FakeUnit(active="failed", hang=True),
        FakeUnit(active="inactive", exits=True),
        FakeUnit(active="failed", dies_after=2),
    ],
    ids=["stopped and fails", "failed and fails", "hangs", "exits", "dies"],
)
async def test_a_unit_that_did_not_run_before_need_not_run_after(unit: FakeUnit) -> None:
    host = await updated(unit)
    assert (host.phase, host.actions()) == (Phase.IDLE, ["restart app.service"])
    assert host.world.history[-1].outcome == "done"
    assert host.world.disk["/etc/app/x"] == RegularFile(b"2")
    if unit.fail_restarts or unit.hang:
        assert "app.service did not run before the update" in host.world.history[-1].message


async def test_what_was_seen_before_the_update_outlives_a_kill() -> None:
    """After the kill the unit is down because of us, which must not count as "did not run before"."""
    for fuse in range(1, 40):
        host = Host(World(units={"app.service": FakeUnit()}))
        host.want(A)
        await host.settle()
        host.world.units["app.service"] = FakeUnit(fail_restarts=99)
        host.want(B)
        host.world.calls, host.world.fuse = 0, fuse
        await host.settle()
        assert host.world.history[-1].outcome == "done-after-fallback", f"killed at call {fuse}"


async def test_after_an_update_that_ended_half_way_a_unit_that_is_down_has_to_come_up() -> None:
    host = await updated(FakeUnit(bad_until_boot=99))
    assert host.world.history[-1].outcome == "degraded"
    host.want(config("c", {"/etc/app/x": "3", "/etc/quiet/q": "1"}))
    await host.settle()
    assert host.phase is Phase.DEGRADED
    assert host.configs[host.world.current].name == "a"


async def test_a_unit_that_the_update_enables_has_to_start() -> None:
    host = Host(World(units={"app.service": FakeUnit(active="inactive", file="disabled", fail_restarts=99)}))
    host.want(
        config(
            "b",
            units=[
                UnitEntry("app.service", contents="[Service]\n[Install]\nWantedBy=multi-user.target\n", enabled=True)
            ],
        )
    )
    await host.settle()
    assert host.world.history[-1].outcome == "done-after-fallback"


@pytest.mark.parametrize(
    ("unit", "outcome"),
    [
        (FakeUnit(exits=True), "done-after-fallback"),  # a daemon that ran and now ends, whatever its exit status
        (FakeUnit(exits=True, type="oneshot"), "done"),
        (FakeUnit(exits=True, triggered_by=("app.socket",)), "done"),
        (FakeUnit(exits=True, triggered_by=("app.socket",), result="exit-code"), "done-after-fallback"),
    ],
    ids=["a daemon", "oneshot", "started by a socket", "started by a socket and broken"],
)
async def test_a_unit_that_ran_before_and_ends(unit: FakeUnit, outcome: str) -> None:
    host = await updated(unit)
    assert host.world.history[-1].outcome == outcome


async def test_a_condition_that_is_not_met_after_a_reboot() -> None:
    host = Host(World(units={"app.service": FakeUnit(), "web.service": FakeUnit()}))
    units = [UnitEntry("web.service", enabled=True)]
    host.want(config("a", {"/etc/app/x": "1"}, units))
    await host.settle()
    host.world.units["web.service"].condition = CONDITION
    host.want(config("b", {"/etc/app/x": "1", "/etc/unlisted": "1"}, units))
    await host.settle()
    assert (host.phase, host.actions()[-1]) == (Phase.IDLE, "reboot")
    assert host.world.history[-1].outcome == "done"


# Units that leave the config

APP = UnitEntry("app.service", contents="[Service]\nExecStart=/bin/app\n[Install]\nWantedBy=x.target", enabled=True)
QUIET = Policy(
    files={"/etc/quiet": Entry("/etc/quiet", (NONE,)), "/etc/web": Entry("/etc/web", (restart("web.service"),))},
    units={"app.service": Entry("app.service", (DAEMON_RELOAD,))},
)


class QuietHost(Host):
    """The policy has no action for app.service but a daemon-reload."""

    async def _policy(self, *_: MachineConfig) -> Policy:
        return QUIET


async def running_app(host: Host) -> FakeUnit:
    host.want(config("a", {"/etc/quiet/q": "1"}, [APP]))
    await host.settle()
    app = host.world.units["app.service"]
    app.active = "active"
    host.world.done.clear()
    return app


async def test_a_unit_that_leaves_the_config_is_stopped() -> None:
    host = QuietHost(World())
    app = await running_app(host)
    host.want(config("b", {"/etc/quiet/q": "1"}))
    await host.settle()
    assert host.actions() == ["daemon-reload", "stop app.service"]
    assert (app.active, host.phase, host.world.history[-1].outcome) == ("inactive", Phase.IDLE, "done")


async def test_a_unit_that_leaves_is_stopped_where_its_entry_asks_for_a_restart() -> None:
    host = Host(World())
    app = await running_app(host)
    host.want(config("b", {"/etc/quiet/q": "1"}))
    await host.settle()
    assert host.actions() == ["daemon-reload", "stop app.service"]
    assert app.active == "inactive"


async def test_a_unit_whose_file_something_else_removed_is_left_alone() -> None:
    host = Host(World(units={"app.service": FakeUnit(load="not-found", active="active", file="")}))
    host.want(A)
    await host.settle()
    assert host.actions() == []
    assert host.world.units["app.service"].active == "active"


async def test_a_unit_of_the_os_that_comes_back_is_not_stopped() -> None:
    host = QuietHost(World(units={"app.service": FakeUnit(active="active", file="enabled")}))
    await running_app(host)
    host.want(config("b", {"/etc/quiet/q": "1"}))
    await host.settle()
    assert host.actions() == ["daemon-reload"]
    assert host.world.units["app.service"].active == "active"


@pytest.mark.finding(
    "users: first trial of configs", "What an update stopped or brought is as before when it is taken back."
)
async def test_what_was_stopped_runs_again_after_a_revert() -> None:
    host = QuietHost(World(units={"web.service": FakeUnit()}))
    app = await running_app(host)
    host.world.units["web.service"].fail_restarts = 99
    host.limits = replace(host.limits, may_reboot=False)
    host.want(config("b", {"/etc/quiet/q": "1", "/etc/web/x": "1"}))
    await host.settle()
    assert "stop app.service" in host.actions()
    assert host.actions()[-1] == "restart web.service"
    assert "restart app.service" in host.actions()
    assert (app.active, app.load) == ("active", "loaded")


async def test_a_unit_that_came_with_a_config_that_is_taken_back_is_stopped() -> None:
    host = Host(World(units={"trust.service": FakeUnit()}))
    host.want(config("a", {"/etc/quiet/q": "1"}))
    await host.settle()
    host.limits = replace(host.limits, may_reboot=False)
    host.world.units["trust.service"].dies_after = 1
    host.want(config("b", {"/etc/quiet/q": "1", "/etc/ca/x": "1"}, [APP]))
    await host.settle()
    assert [action for action in host.actions() if "app.service" in action] == [
        "restart app.service",
        "stop app.service",
    ]
    assert host.world.units["app.service"].active == "inactive"


@pytest.mark.parametrize("fuse", range(1, 60, 3))
async def test_a_removed_unit_is_stopped_despite_kills(fuse: int) -> None:
    host = QuietHost(World())
    app = await running_app(host)
    host.want(config("b", {"/etc/quiet/q": "1"}))
    host.world.calls, host.world.fuse = 0, fuse
    await host.settle()
    assert (app.active, host.phase, host.configs[host.world.current].name) == ("inactive", Phase.IDLE, "b")
