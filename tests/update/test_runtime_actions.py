# SPDX-License-Identifier: Apache-2.0
"""Reloads that are rejected, units that restart along with others, and units that are still starting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.policy import Entry
from nodeagent.core.plan.sides import HostView
from nodeagent.domains import sysctl
from nodeagent.update.ports.events import RevertStarted, Warned
from nodeagent.update.states import Phase
from tests.world import FakeUnit, World
from tests.world.run import POLICY, Host, config, kinds

pytestmark = pytest.mark.looptime

A = config("a", {"/etc/web/x": "1", "/etc/ca/x": "1"})


async def started(**web: object) -> Host:
    units = {"web.service": FakeUnit(), "app.service": FakeUnit(), "trust.service": FakeUnit()}
    host = Host(World(units=units))
    host.want(A)
    await host.settle()
    assert host.phase is Phase.IDLE
    host.world.done.clear()
    for name, value in web.items():
        setattr(units["web.service"], name, value)
    return host


async def test_a_rejected_reload_is_reverted_without_a_reboot() -> None:
    host = await started(rejects="Unable to reload configuration: no such file")
    host.want(config("b", {"/etc/web/x": "2", "/etc/ca/x": "1"}))
    await host.settle()
    entry = host.world.history[-1]
    assert (entry.outcome, entry.reason, entry.reboots) == ("reverted", "ReloadRejected", 0)
    assert host.actions() == ["reload web.service"] * 2
    assert host.world.disk["/etc/web/x"] == RegularFile(b"1")
    assert host.world.boot == 1


async def test_a_reload_without_a_word_is_a_warning() -> None:
    host = await started(rejects=None)
    host.want(config("b", {"/etc/web/x": "2", "/etc/ca/x": "1"}))
    await host.settle()
    assert (host.phase, host.world.history[-1].outcome) == (Phase.IDLE, "done")
    assert any(isinstance(event, Warned) and "did not log" in event.message for event in host.world.events)


async def test_a_unit_that_restarts_along_is_restarted_once() -> None:
    host = await started()
    host.world.units["trust.service"].takes_along = ("app.service",)
    host.want(config("b", {"/etc/web/x": "1", "/etc/ca/x": "2"}))
    await host.settle()
    assert host.actions() == ["restart trust.service"]
    assert host.world.units["app.service"].read["/etc/ca/x"] == RegularFile(b"2")
    assert host.world.history[-1].outcome == "done"


BOTH = config("b", {"/etc/web/x": "1", "/etc/ca/x": "2", "/etc/app/x": "2"})


async def test_the_unit_that_takes_another_along_is_restarted_first() -> None:
    host = await started()
    host.world.units["app.service"].takes_along = ("trust.service",)
    host.want(BOTH)
    planned = [action.unit for action in make_plan(A, BOTH, POLICY).actions]
    assert planned == ["trust.service", "app.service"]
    await host.settle()
    assert host.actions() == ["restart app.service"]
    assert host.world.units["trust.service"].read["/etc/ca/x"] == RegularFile(b"2")
    assert host.world.history[-1].outcome == "done"


async def test_a_requirement_that_comes_with_the_update_counts() -> None:
    class Later(FakeUnit):
        @property
        def takes_along(self) -> tuple[str, ...]:
            return ("trust.service",) if any("daemon-reload" in done for done in host.world.done) else ()

        @takes_along.setter
        def takes_along(self, value: tuple[str, ...]) -> None: ...

    host = await started()
    host.world.units["app.service"] = Later()
    unit = UnitEntry("app.service", "[Unit]\nRequires=x\n[Install]\nWantedBy=multi-user.target\n", enabled=True)
    host.want(config("b", {"/etc/web/x": "1", "/etc/ca/x": "2"}, units=[unit]))
    await host.settle()
    assert host.actions() == ["daemon-reload", "restart app.service"]


async def test_units_that_require_each_other_are_restarted_once() -> None:
    host = await started()
    host.world.units["trust.service"].takes_along = ("app.service",)
    host.world.units["app.service"].takes_along = ("trust.service",)
    host.want(BOTH)
    await host.settle()
    assert len(host.actions()) == 1
    assert host.world.history[-1].outcome == "done"


async def test_a_unit_that_was_taken_along_before_a_kill_is_not_restarted_again() -> None:
    async def taking_along() -> Host:
        host = await started()
        host.world.units["app.service"].takes_along = ("trust.service",)
        host.world.calls = 0
        host.want(BOTH)
        return host

    undisturbed = await taking_along()
    await undisturbed.settle()
    for call in range(1, undisturbed.world.calls + 1):
        host = await taking_along()
        await host.kill_at(call, power=False)
        await host.settle()
        assert host.actions() == ["restart app.service"], f"killed at call {call}"
        assert host.world.history[-1].outcome == "done"


@pytest.mark.parametrize("runs", [True, False])
async def test_a_unit_that_is_taken_along_has_to_stay_up_if_it_ran(runs: bool) -> None:
    host = await started(dies_after=1)
    host.limits = replace(host.limits, may_reboot=False)
    host.world.units["app.service"].takes_along = ("web.service",)
    host.world.units["web.service"].active = "active" if runs else "inactive"
    host.want(config("b", {"/etc/web/x": "1", "/etc/ca/x": "1", "/etc/app/x": "2"}))
    await host.settle()
    assert ("UnitUnhealthy" in kinds(host, RevertStarted)) is runs
    assert (host.world.history[-1].outcome == "done") is not runs


async def test_a_unit_that_is_still_starting_is_restarted_instead_of_reloaded() -> None:
    host = await started(active="activating")
    host.want(config("b", {"/etc/web/x": "2", "/etc/ca/x": "1"}))
    await host.settle()
    assert host.actions() == ["restart web.service"]
    assert host.world.units["web.service"].read["/etc/web/x"] == RegularFile(b"2")


SWAPPINESS = "/proc/sys/vm/swappiness"
SYSCTL = {"/etc/sysctl.d": Entry("/etc/sysctl.d", rule=sysctl.DOMAIN.actions)}


def settings(name: str, value: int) -> MachineConfig:
    return config(name, {"/etc/sysctl.d/60-site.conf": f"vm.swappiness = {value}\n"})


async def with_settings(refused: str = "") -> Host:
    unit = FakeUnit(type="oneshot")
    host = Host(World(units={"systemd-sysctl.service": unit}), policy=replace(POLICY, files=SYSCTL))
    host.want(settings("a", 60))
    await host.settle()
    assert host.phase is Phase.IDLE
    host.view = HostView({SWAPPINESS: b"60\n"})
    host.world.done.clear()
    host.world.refused = {refused}
    return host


async def test_the_kernel_takes_the_values() -> None:
    host = await with_settings()
    host.want(settings("b", 10))
    await host.settle()
    assert (host.phase, host.world.history[-1].outcome) == (Phase.IDLE, "done")
    assert host.actions() == ["restart systemd-sysctl.service"]
    assert host.world.units_checked == [{SWAPPINESS: "10"}]


async def test_a_value_that_the_kernel_does_not_take_is_reverted_without_a_reboot() -> None:
    host = await with_settings("10")
    boots = host.world.boot
    host.want(settings("b", 10))
    await host.settle()
    entry = host.world.history[-1]
    assert (entry.outcome, entry.reason, entry.reboots) == ("reverted", "ReloadRejected", 0)
    # The restart with the previous file brings the previous value.
    assert host.actions() == ["restart systemd-sysctl.service"] * 2
    assert host.world.units_checked == [{SWAPPINESS: "10"}, {SWAPPINESS: "60"}]
    assert host.world.boot == boots


async def test_a_value_that_the_kernel_refuses_is_reverted_without_a_reboot() -> None:
    host = await with_settings()
    host.world.units["systemd-sysctl.service"].fail_restarts = 1
    host.want(settings("b", 10))
    await host.settle()
    entry = host.world.history[-1]
    assert (entry.outcome, entry.reason, entry.reboots) == ("reverted", "JobFailed", 0)
    assert host.world.units_checked == [{SWAPPINESS: "60"}]
