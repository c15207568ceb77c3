# SPDX-License-Identifier: Apache-2.0
"""Units that an update starts or stops because they are new, enabled, disabled or masked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.policy import Policy, merge
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.core.plan.sides import HostView
from nodeagent.domains import with_rules
from nodeagent.reasons import Reason
from nodeagent.update.states import Phase
from tests.world import FakeUnit, World
from tests.world.run import POLICY, Host, config

pytestmark = pytest.mark.looptime

RECOMMENDED = Path(__file__).parents[2] / "systemd/usr/lib/nodeagent/policy-recommended.yaml"
RULED: Policy = merge(replace(POLICY, units={}), with_rules(parse_policy(RECOMMENDED.read_bytes(), str(RECOMMENDED))))
QUIET = {"/etc/quiet/q": "1"}
TEXT = "[Service]\nExecStart=/bin/x\n[Install]\nWantedBy={}.target\n"
A = config("a", QUIET)
OS_TEXT = {"/usr/lib/systemd/system/app.service": TEXT.format("multi-user").encode()}


def unit(name: str = "x.service", target: str = "multi-user", **changes: Any) -> UnitEntry:
    return UnitEntry(name, **{"contents": TEXT.format(target), "enabled": True, **changes})


def with_units(name: str, *units: UnitEntry) -> MachineConfig:
    return config(name, QUIET, units)


async def at(first: MachineConfig = A, **units: FakeUnit) -> Host:
    reached = {"multi-user.target": FakeUnit(), "app.service": FakeUnit()}
    host = Host(World(units=reached), policy=RULED, view=HostView(OS_TEXT))
    host.want(first)
    await host.settle()
    assert host.phase is Phase.IDLE
    host.world.units |= {name.replace("_", "."): unit for name, unit in units.items()}
    host.world.done.clear()
    return host


async def to(host: Host, new: MachineConfig) -> Any:
    host.want(new)
    await host.settle()
    return host.world.history[-1]


def active(host: Host, name: str = "x.service") -> str:
    return host.world.units[name].active


async def test_a_new_unit_is_started_and_watched_and_stopped_when_it_leaves() -> None:
    host = await at()
    entry = await to(host, with_units("b", unit()))
    assert (entry.outcome, entry.reboots, active(host)) == ("done", 0, "active")
    assert host.actions() == ["daemon-reload", "restart x.service"]
    entry = await to(host, A)
    assert (entry.outcome, entry.reboots, active(host)) == ("done", 0, "inactive")


async def test_enabled_disabled_masked_and_unmasked() -> None:
    host = await at(with_units("a", unit(enabled=False)))
    assert active(host) == "inactive"
    for name, change, state in (
        ("b", {}, "active"),
        ("c", {"enabled": False}, "inactive"),
        ("d", {}, "active"),
        ("e", {"mask": True}, "inactive"),
        ("f", {}, "active"),
    ):
        entry = await to(host, with_units(name, unit(**change)))
        assert (entry.outcome, entry.reboots, active(host)) == ("done", 0, state), name


async def test_what_fails_with_its_mask_is_forgotten() -> None:
    host = await at(with_units("a", unit("x.timer")))
    host.world.units["x.timer"].active = "failed"
    entry = await to(host, with_units("b", unit("x.timer", mask=True)))
    assert (entry.outcome, active(host, "x.timer")) == ("done", "inactive")


async def test_a_unit_of_the_os_is_stopped_and_started() -> None:
    host = await at()
    entry = await to(host, with_units("b", UnitEntry("app.service", enabled=False)))
    assert (entry.outcome, entry.reboots, active(host, "app.service")) == ("done", 0, "inactive")
    entry = await to(host, with_units("c", UnitEntry("app.service", enabled=True)))
    assert (entry.outcome, entry.reboots, active(host, "app.service")) == ("done", 0, "active")


ON = UnitEntry("app.service", enabled=True)
OFF = {"file": "disabled", "active": "inactive"}


@pytest.mark.parametrize(
    ("before", "changes", "reboots", "after"),
    [
        ({"file": "disabled", "active": "inactive"}, {}, 0, "inactive"),
        # It was enabled before, and is enabled again: a boot starts it.
        ({}, {}, 1, "active"),
        # A boot starts it all the same.
        ({"file": "disabled", "active": "inactive"}, {"wanted_by": ("multi-user.target",)}, 0, "active"),
    ],
)
async def test_the_only_entry_that_enables_a_unit_of_the_os_leaves(
    before: dict[str, Any], changes: dict[str, Any], reboots: int, after: str
) -> None:
    host = await at(app_service=FakeUnit(**before))
    entry = await to(host, with_units("b", ON))
    assert (entry.outcome, entry.reboots, active(host, "app.service")) == ("done", 0, "active")
    for name, value in changes.items():
        setattr(host.world.units["app.service"], name, value)
    entry = await to(host, A)
    assert (entry.outcome, entry.reboots, active(host, "app.service")) == ("done", reboots, after)
    assert (await host.ports().units.state("app.service")).file == before.get("file", "enabled")


async def test_an_entry_leaves_that_did_more_than_enable_its_unit() -> None:
    host = await at(app_service=FakeUnit(**OFF))
    await to(host, with_units("b", replace(ON, dropins={"a.conf": "[Service]\nNice=1\n"})))
    entry = await to(host, A)
    assert (entry.outcome, entry.reboots) == ("done", 1)


async def test_a_revert_starts_what_was_disabled_again() -> None:
    host = await at(app_service=FakeUnit(**OFF))
    await to(host, with_units("b", ON))
    host.limits = replace(host.limits, may_reboot=False)
    host.world.units["z.service"] = FakeUnit(active="inactive", file="disabled", brought=True, fail_restarts=99)
    host.world.done.clear()
    entry = await to(host, with_units("c", unit("z.service")))
    assert entry.outcome == "reverted", entry
    assert host.actions().index("stop app.service") < host.actions().index("restart z.service")
    assert active(host, "app.service") == "active"
    assert (await host.ports().units.state("app.service")).file == "enabled"


@pytest.mark.parametrize("power", [False, True])
async def test_each_kill_while_a_unit_is_disabled_again(power: bool) -> None:
    async def begun() -> Host:
        host = await at(app_service=FakeUnit(**OFF))
        await to(host, with_units("b", ON))
        host.world.calls = 0
        return host

    undisturbed = await begun()
    await to(undisturbed, A)
    for call in range(1, undisturbed.world.calls + 1):
        host = await begun()
        host.want(A)
        await host.kill_at(call, power=power)
        await host.settle()
        entry = host.world.history[-1]
        assert (entry.outcome, entry.to_name) == ("done", "a"), f"killed at {call}: {entry}"
        assert active(host, "app.service") == "inactive", f"killed at {call}"
        assert (await host.ports().units.state("app.service")).file == "disabled", f"killed at {call}"


async def test_a_unit_that_no_boot_starts_is_not_started() -> None:
    host = await at()
    entry = await to(host, with_units("b", unit(target="sleep")))
    assert (entry.outcome, entry.reboots, active(host)) == ("done", 0, "inactive")
    assert host.actions() == ["daemon-reload"]


async def test_a_disabled_unit_that_another_one_starts_runs_on() -> None:
    host = await at()
    host.world.units["app.service"].wanted_by = ("multi-user.target",)
    entry = await to(host, with_units("b", UnitEntry("app.service", enabled=False)))
    assert (entry.outcome, entry.reboots, active(host, "app.service")) == ("done", 0, "active")


async def test_a_unit_that_runs_already_is_left_alone() -> None:
    host = await at(with_units("a", unit(enabled=False)))
    host.world.units["x.service"].active = "active"
    entry = await to(host, with_units("b", unit()))
    assert (entry.outcome, host.actions(), active(host)) == ("done", ["daemon-reload"], "active")


async def test_new_units_start_in_their_order() -> None:
    host = await at()
    for name, after in (("a.service", "c.service"), ("b.service", ""), ("c.service", "b.service")):
        host.world.units[name] = FakeUnit(active="inactive", file="disabled", brought=True, after=(after,))
    entry = await to(host, with_units("b", *(unit(f"{name}.service") for name in "abc")))
    assert (entry.outcome, entry.reboots) == ("done", 0)
    assert host.actions() == ["daemon-reload", *(f"restart {name}.service" for name in "bca")]


async def test_units_that_wait_for_each_other_start_all_the_same() -> None:
    host = await at()
    for name, after in (("a.service", "b.service"), ("b.service", "a.service")):
        host.world.units[name] = FakeUnit(active="inactive", file="disabled", brought=True, after=(after,))
    entry = await to(host, with_units("b", unit("a.service"), unit("b.service")))
    assert (entry.outcome, entry.reboots) == ("done", 0)
    assert active(host, "a.service") == active(host, "b.service") == "active"


async def test_a_unit_that_does_not_start_leads_to_one_reboot() -> None:
    host = await at()
    host.world.units["x.service"] = FakeUnit(active="inactive", file="disabled", brought=True, fail_restarts=1)
    entry = await to(host, with_units("b", unit()))
    assert (entry.outcome, entry.reboots) == ("done-after-fallback", 1)
    assert active(host) == "active"


async def test_a_unit_that_never_stays_up_is_reverted() -> None:
    host = await at()
    host.world.units["x.service"] = FakeUnit(
        active="inactive", file="disabled", brought=True, fail_restarts=99, bad_until_boot=99
    )
    entry = await to(host, with_units("b", unit()))
    assert (entry.outcome, entry.reboots <= 2) == ("reverted", True)
    assert not any("x.service" in path for path in host.world.disk)


async def test_a_revert_stops_what_was_started_and_starts_what_was_stopped() -> None:
    """The last unit fails and no reboot is allowed, so all of it is taken back."""
    host = await at(with_units("a", unit("on.service", enabled=False), unit("off.service")))
    host.world.units["off.service"].active = "active"
    host.limits = replace(host.limits, may_reboot=False)
    host.world.units["z.service"] = FakeUnit(active="inactive", file="disabled", brought=True, fail_restarts=99)
    new = with_units(
        "b", unit("on.service"), unit("off.service", enabled=False), unit("new.service"), unit("z.service")
    )
    host.want(new)
    await host.settle()
    entry = host.world.history[-1]
    assert entry.outcome == "reverted", entry
    states = {name: active(host, f"{name}.service") for name in ("on", "off", "new")}
    assert states == {"on": "inactive", "off": "active", "new": "inactive"}


@pytest.mark.parametrize("power", [False, True])
async def test_each_kill_on_the_way(power: bool) -> None:
    first = with_units("a", unit("on.service", enabled=False), unit("off.service"))
    new = with_units("b", unit("on.service"), unit("off.service", enabled=False), unit("new.service"))

    async def begun() -> Host:
        host = await at(first)
        host.world.units["off.service"].active = "active"
        host.world.calls = 0
        return host

    undisturbed = await begun()
    await to(undisturbed, new)
    for call in range(1, undisturbed.world.calls + 1):
        host = await begun()
        host.want(new)
        await host.kill_at(call, power=power)
        await host.settle()
        entry = host.world.history[-1]
        assert entry.outcome == "done", f"killed at {call}: {entry}"
        states = {name: active(host, f"{name}.service") for name in ("on", "off", "new")}
        assert states == {"on": "active", "off": "inactive", "new": "active"}, f"killed at {call}"
        assert all(host.actions().count(f"restart {name}.service") <= 1 for name in ("on", "new")) or power


async def test_a_type_that_waits_for_a_boot() -> None:
    host = await at()
    mount = UnitEntry("data.mount", "[Mount]\nWhat=/dev/x\nWhere=/data\n[Install]\nWantedBy=multi-user.target\n", True)
    entry = await to(host, with_units("b", mount))
    assert (entry.outcome, entry.reboots) == ("done", 1)
    assert Reason.UNIT_NOT_FOUND not in entry.reason


@pytest.mark.parametrize(
    ("kind", "condition", "wanted", "actions"),
    [
        ("oneshot", "ConditionPathExists", True, ["restart web.service"]),
        # The admin, or nothing, has kept it from starting.
        ("oneshot", "", True, []),
        ("oneshot", "ConditionPathExists", False, []),
        ("simple", "ConditionPathExists", True, []),
    ],
)
async def test_a_oneshot_that_lacked_what_the_update_brings_is_started_instead_of_reloaded(
    kind: str, condition: str, wanted: bool, actions: list[str]
) -> None:
    file = "enabled" if wanted else "disabled"
    host = await at(web_service=FakeUnit(active="inactive", type=kind, condition=condition, file=file))
    entry = await to(host, config("b", {**QUIET, "/etc/web/x": "1"}))
    assert (entry.outcome, host.actions()) == ("done", actions)
