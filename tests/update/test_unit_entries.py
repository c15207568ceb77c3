# SPDX-License-Identifier: Apache-2.0
"""Entries of units, judged against what the same update brings: one answer in every situation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.change import PolicySource
from nodeagent.core.plan.policy import DAEMON_RELOAD, Entry, reload, restart
from nodeagent.errors import InvalidInput
from nodeagent.update.ports.events import Warned
from nodeagent.update.states import Phase
from tests.world import FakeUnit, World
from tests.world.run import LIMITS, POLICY, Host, config

pytestmark = pytest.mark.looptime

BASE = config("base", {"/etc/quiet/q": "1"})
TYPO = UnitEntry("chronnyd.service", enabled=True)
MISSING = config("missing", {"/etc/quiet/q": "1"}, [TYPO])
WARNING = (
    "warning: unit:chronnyd.service there is no unit chronnyd.service on this host or in the config;"
    " did you mean chronyd.service?"
)
SERVICE = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
TEMPLATE = "/etc/systemd/system/echo@.service"


def new_host(**units: FakeUnit) -> Host:
    named = {f"{name}.service": unit for name, unit in units.items()}
    return Host(World(units={"chronyd.service": FakeUnit(), "app.service": FakeUnit(), **named}))


async def at(*configs: MachineConfig, host: Host | None = None) -> Host:
    host = host or new_host()
    for each in configs:
        host.world.events.clear()
        host.want(each)
        await host.settle()
    return host


def warned(host: Host) -> list[str]:
    return [event.message for event in host.world.events if isinstance(event, Warned)]


def at_rest_with(host: Host, name: str, boots: int = 1) -> None:
    assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, name)
    assert host.world.boot == boots
    assert all(entry.outcome == "done" for entry in host.world.history)


@pytest.mark.finding(
    "users: units that exist nowhere",
    "A unit that is enabled and exists nowhere is a warning, in the first config as later.",
)
@pytest.mark.finding(
    "units: enabled without a unit", "A unit that is enabled and exists nowhere is a warning with the closest name."
)
@pytest.mark.parametrize("before", [(), (BASE,)], ids=["first config", "later config"])
async def test_an_enabled_unit_from_nowhere_is_a_warning(before: tuple[MachineConfig, ...]) -> None:
    host = await at(*before, MISSING)
    at_rest_with(host, "missing")
    assert host.world.done == []
    assert host.world.history[-1].message == WARNING
    assert warned(host) == [WARNING]


@pytest.mark.finding(
    "users: units that exist nowhere", "The leaving of an entry for a unit from nowhere takes no action."
)
async def test_its_leaving_plans_nothing() -> None:
    host = await at(MISSING, BASE)
    at_rest_with(host, "base")
    assert (host.world.done, warned(host)) == ([], [])


@pytest.mark.finding("users: units that exist nowhere", "A rollback to a config with a unit from nowhere works.")
async def test_the_way_back_leads_to_it_as_well() -> None:
    host = await at(MISSING, replace(BASE, files={}), MISSING)
    at_rest_with(host, "missing")
    assert warned(host) == [WARNING]


async def test_after_an_update_that_ended_half_way_it_is_a_warning_as_well() -> None:
    broken = config("broken", {"/etc/app/x": "2"})
    limits = replace(LIMITS, revert=False)
    host = new_host(app=FakeUnit())
    host.limits = limits
    await at(config("a", {"/etc/app/x": "1"}), host=host)
    host.world.units["app.service"].bad_until_boot = 99
    await at(broken, host=host)
    assert host.phase is Phase.DEGRADED
    host.world.units["app.service"].bad_until_boot = 0
    boots = host.world.boot
    await at(config("c", {"/etc/app/x": "1"}, [TYPO]), host=host)
    assert (host.phase, host.world.boot) == (Phase.IDLE, boots)
    assert warned(host) == [WARNING]


@pytest.mark.finding(
    "users: units that exist nowhere", "When the unit appears later, the entry is compared, and a difference is drift."
)
async def test_when_the_unit_appears_it_is_drift() -> None:
    host = await at(MISSING)
    host.world.units["chronnyd.service"] = FakeUnit(active="inactive", file="disabled")
    await at(config("more", {"/etc/quiet/q": "2"}, [TYPO]), host=host)
    assert host.record.reason == "Drifted"
    assert "unit:chronnyd.service: is disabled" in host.record.message


@pytest.mark.finding(
    "users: units that exist nowhere",
    "With strict_units, an entry for a unit from nowhere is an error before the lease.",
)
@pytest.mark.parametrize("before", [(), (BASE,)], ids=["first config", "later config"])
async def test_strictly_it_is_an_error(before: tuple[MachineConfig, ...]) -> None:
    host = await at(*before)
    host.limits = replace(LIMITS, strict_units=True)
    await at(MISSING, host=host)
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "UnitMissing")
    assert "did you mean chronyd.service?" in host.record.message


@pytest.mark.finding("units: presets", "A first config enables the units that it brings, with one reboot at most.")
@pytest.mark.finding(
    "units: enabled by a first config", "A first config enables the units that it brings, with one reboot at most."
)
@pytest.mark.parametrize(
    "new",
    [
        config("b", {"/etc/systemd/system/byfile.service": SERVICE}, [UnitEntry("byfile.service", enabled=True)]),
        config("b", {TEMPLATE: SERVICE}, [UnitEntry("echo@foo.service", enabled=True)]),
        config("b", units=[UnitEntry("echo@.service", SERVICE), UnitEntry("echo@foo.service", enabled=True)]),
    ],
    ids=["a file", "a template as a file", "a template"],
)
@pytest.mark.parametrize("before", [(), (BASE,)], ids=["first config", "later config"])
async def test_a_config_enables_what_it_brings(before: tuple[MachineConfig, ...], new: MachineConfig) -> None:
    host = await at(*before)
    await at(new, host=host)
    at_rest_with(host, "b", boots=2)
    unit = next(name for name in new.units if not name.startswith("echo@."))
    assert host.world.units[unit].file == "enabled"
    assert warned(host) == []


@pytest.mark.finding("units: presets", "After a drift that is repaired, a config enables the units that it brings.")
async def test_with_drift_that_is_repaired_a_config_enables_what_it_brings() -> None:
    host = await at(BASE)
    host.on_drift = "repair"
    del host.world.disk["/etc/quiet/q"]
    new = config("b", {"/etc/quiet/q": "1", TEMPLATE: SERVICE}, [UnitEntry("echo@foo.service", enabled=True)])
    await at(new, host=host)
    at_rest_with(host, "b", boots=2)
    assert host.world.units["echo@foo.service"].file == "enabled"


@pytest.mark.finding(
    "units: enabled without a unit", "An entry that stays when the file of its unit leaves is a warning."
)
@pytest.mark.parametrize("other", [False, True], ids=["nothing else", "a file of the OS"])
@pytest.mark.parametrize("name", ["own.service", "echo@foo.service"])
async def test_an_entry_that_stays_when_its_file_leaves(name: str, *, other: bool) -> None:
    file = "echo@.service" if "@" in name else name
    entry = UnitEntry(name, enabled=True)
    path = f"/etc/systemd/system/{file}"
    host = await at(config("a", {"/etc/quiet/q": "1", path: SERVICE}, [entry]))
    host.policy = replace(POLICY, files={**POLICY.files, path: Entry(path, (DAEMON_RELOAD,))})
    if other:
        host.world.disk[f"/usr/lib/systemd/system/{file}"] = RegularFile(SERVICE.encode())
    await at(config("b", {"/etc/quiet/q": "1"}, [entry]), host=host)
    assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, "b")
    text = f"warning: unit:{name} there is no unit {name} on this host or in the config"
    assert [each for each in warned(host) if "there is no unit" in each] == ([] if other else [text])


async def refused(host: Host, new: MachineConfig) -> str:
    """Return the message of the refusal, which comes before the lease."""
    await at(new, host=host)
    assert (host.phase, host.world.boot, host.world.done) == (Phase.DEGRADED, 1, [])
    assert not any(entry.to_name == new.name for entry in host.world.history)
    return host.record.message


@pytest.mark.finding("units: aliases", "An entry that systemd refuses is refused before the lease, by its name.")
@pytest.mark.finding(
    "units: enabled without a unit", "An entry by an alias is refused before the lease, with the name of the unit."
)
@pytest.mark.parametrize("before", [(), (BASE,)], ids=["first config", "later config"])
@pytest.mark.parametrize("enabled", [True, False])
async def test_an_alias_is_refused_with_the_name_of_the_unit(
    before: tuple[MachineConfig, ...], *, enabled: bool
) -> None:
    host = await at(*before, host=new_host(nick=FakeUnit(file="alias", alias_of="real.service")))
    message = await refused(host, config("b", units=[UnitEntry("nick.service", enabled=enabled)]))
    assert "unit:nick.service: is an alias of real.service" in message


@pytest.mark.finding("units: aliases", "An alias that the same config brings is refused before the lease.")
async def test_an_alias_of_a_unit_of_the_config_is_refused() -> None:
    real = UnitEntry("real.service", f"{SERVICE}Alias=nick.service\n", enabled=True)
    message = await refused(new_host(), config("b", units=[real, UnitEntry("nick.service", enabled=True)]))
    assert "unit:nick.service: is an alias of real.service" in message


@pytest.mark.finding("units: aliases", "A unit that an admin masked is refused before the lease, with the way out.")
@pytest.mark.parametrize("before", [(), (BASE,)], ids=["first config", "later config"])
async def test_a_masked_unit_is_refused(before: tuple[MachineConfig, ...]) -> None:
    masked = FakeUnit(load="masked", active="inactive", file="masked")
    host = await at(*before, host=new_host(real=masked))
    message = await refused(host, config("b", units=[UnitEntry("real.service", enabled=True)]))
    assert "unit:real.service: is masked on this host: run systemctl unmask" in message


@pytest.mark.finding("units: enabled without a unit", "A template that names no instance is refused before the lease.")
async def test_a_template_without_an_instance_is_refused() -> None:
    message = await refused(new_host(), config("b", units=[UnitEntry("echo@.service", SERVICE, enabled=True)]))
    assert "unit:echo@.service: is a template without DefaultInstance=" in message


QUADLET = "/etc/containers/systemd/web.container"
GENERATED = (
    "warning: unit:web.service is made by a generator, so systemd cannot enable it:"
    f" [Install] of {QUADLET} decides"
)  # fmt: skip


@pytest.mark.finding("units: aliases", "The enablement of a generated unit is a warning that names its source.")
@pytest.mark.finding(
    "units: enabled without a unit", "The enablement of a generated unit is a warning that names its source."
)
@pytest.mark.parametrize("before", [(), (BASE,)], ids=["first config", "later config"])
async def test_a_generated_unit_is_not_enabled(before: tuple[MachineConfig, ...]) -> None:
    host = await at(*before)
    await at(config("b", {QUADLET: "[Container]\n"}, [UnitEntry("web.service", enabled=True)]), host=host)
    at_rest_with(host, "b", boots=2)
    assert warned(host) == [GENERATED]


async def test_one_that_a_generator_made_before_is_not_enabled_either() -> None:
    host = await at(BASE, host=new_host(web=FakeUnit(file="generated")))
    await at(config("b", {"/etc/quiet/q": "1"}, [UnitEntry("web.service", enabled=True)]), host=host)
    at_rest_with(host, "b")
    assert "web.service is made by a generator" in warned(host)[0]
    assert host.world.units["web.service"].file == "generated"


def with_policy(action: str, unit: str, path: str = "/etc/x") -> Host:
    host = new_host()
    act = reload(unit) if action == "reload" else restart(unit)
    entry = Entry(path, (DAEMON_RELOAD, act), PolicySource.USER)
    host.policy = replace(POLICY, files={**POLICY.files, path: entry})
    return host


@pytest.mark.finding(
    "units: generators", "A policy that names the service of a quadlet accepts the config that brings it."
)
async def test_a_policy_may_name_the_service_of_a_quadlet() -> None:
    host = with_policy("restart", "web.service", "/etc/containers/systemd")
    await at(config("a", {"/etc/containers/systemd/README": "x"}), host=host)
    at_rest_with(host, "a")
    await at(config("b", {QUADLET: "[Container]\n"}), host=host)
    at_rest_with(host, "b")


async def test_a_policy_for_a_unit_accepts_the_mask_of_one_that_is_nowhere() -> None:
    host = new_host()
    entry = Entry("gone.service", (DAEMON_RELOAD,), PolicySource.USER)
    host.policy = replace(POLICY, units={**POLICY.units, entry.key: entry})
    await at(config("a"), host=host)
    await at(config("b", units=[UnitEntry("gone.service", mask=True)]), host=host)
    at_rest_with(host, "b")


async def test_a_unit_from_nowhere_in_the_policy_is_an_error_of_the_policy() -> None:
    host = with_policy("restart", "chronnyd.service")
    message = await refused(host, config("b", {"/etc/x": "1"}))
    assert host.record.reason == "PolicyInvalid"
    assert "nodeDisruptionPolicy: chronnyd.service: no such unit on this host or in the config" in message
    assert "did you mean chronyd.service?" in message


@pytest.mark.finding(
    "units: what systemd can do with a unit",
    "A policy with an action that systemd rejects is refused before the lease.",
)
@pytest.mark.parametrize(
    ("action", "unit", "why"),
    [
        ("reload", FakeUnit(can_reload=False), "it cannot be reloaded, because it has no ExecReload="),
        ("restart", FakeUnit(can_stop=False), "it cannot be restarted, because RefuseManualStop= rejects manual jobs"),
        ("restart", FakeUnit(can_start=False), "it cannot be restarted, because RefuseManualStart= rejects"),
    ],
)
async def test_an_action_that_systemd_rejects_is_refused(action: str, unit: FakeUnit, why: str) -> None:
    host = with_policy(action, "auditd.service")
    host.world.units["auditd.service"] = unit
    await at(BASE, host=host)
    message = await refused(host, config("b", {"/etc/x": "1"}))
    assert host.record.reason == "PolicyInvalid"
    assert f"nodeDisruptionPolicy: auditd.service: {why}" in message


@pytest.mark.parametrize("text", ["[Service]\nExecReload=/bin/kill -HUP $MAINPID\n", "[Service]\nType=notify-reload\n"])
async def test_an_action_that_the_same_config_makes_possible_is_accepted(text: str) -> None:
    host = with_policy("reload", "auditd.service")
    host.world.units["auditd.service"] = FakeUnit(can_reload=False)
    await at(BASE, host=host)
    unit = UnitEntry("auditd.service", dropins={"10-reload.conf": text})
    host.policy = replace(host.policy, units={"auditd.service": Entry("auditd.service", (DAEMON_RELOAD,))})
    await at(config("b", {"/etc/x": "1"}, [unit]), host=host)
    at_rest_with(host, "b")


@pytest.mark.finding(
    "units: what systemd can do with a unit",
    "The plan has the next stronger action for one of a built-in entry that is rejected.",
)
@pytest.mark.parametrize(
    ("unit", "dropin", "actions"),
    [
        (FakeUnit(), "", ["reload web.service"]),
        (FakeUnit(can_reload=False), "", ["restart web.service"]),
        (FakeUnit(can_reload=False, can_stop=False), "", ["reboot"]),
        (FakeUnit(active="inactive", can_reload=False, can_stop=False), "", []),
        (FakeUnit(can_reload=False), "[Service]\nExecReload=/bin/true\n", ["reload web.service"]),
        (FakeUnit(), "[Service]\nExecReload=\n", ["restart web.service"]),
    ],
)
async def test_a_built_in_action_that_systemd_rejects(unit: FakeUnit, dropin: str, actions: list[str]) -> None:
    host = await at(BASE, host=new_host(web=replace(unit)))
    host.policy = replace(host.policy, units={"web.service": Entry("web.service", (DAEMON_RELOAD,))})
    dropins = {"10-x.conf": dropin} if dropin else {}
    new = config("b", {"/etc/quiet/q": "1", "/etc/web/x": "1"}, [UnitEntry("web.service", dropins=dropins)])
    host.want(new)
    update = await host.build().check(await host._load(host.wanted))
    verbs = [f"{each.type} {each.unit}".strip().lower() for each in update.plan.actions]
    assert [each for each in verbs if each not in ("daemonreload", "drain")] == (actions or ["reload web.service"])
    await at(new, host=host)
    assert [each for each in host.actions() if each != "daemon-reload"] == actions
    assert (host.phase, host.world.history[-1].outcome) == (Phase.IDLE, "done")


@pytest.mark.finding(
    "units: sockets and their services",
    "A restart of a socket whose service cannot be stopped is refused before the lease.",
)
@pytest.mark.parametrize(("active", "can_stop"), [("active", True), ("active", False), ("inactive", False)])
async def test_a_socket_whose_service_cannot_be_stopped(active: str, *, can_stop: bool) -> None:
    host = with_policy("restart", "bus.socket")
    host.world.units["bus.socket"] = FakeUnit(triggers=("bus.service",))
    host.world.units["bus.service"] = FakeUnit(active=active, can_stop=can_stop, triggered_by=("bus.socket",))
    await at(BASE, host=host)
    new = config("b", {"/etc/x": "1"})
    if active == "active" and not can_stop:
        assert "bus.socket: it cannot be restarted while bus.service runs" in await refused(host, new)
    else:
        await at(new, host=host)
        at_rest_with(host, "b")


async def test_a_reload_of_a_socket_does_not_stop_its_service() -> None:
    host = with_policy("reload", "bus.socket")
    host.world.units["bus.socket"] = FakeUnit(triggers=("bus.service",))
    host.world.units["bus.service"] = FakeUnit(can_stop=False, triggered_by=("bus.socket",))
    await at(BASE, config("b", {"/etc/x": "1"}), host=host)
    at_rest_with(host, "b")


@pytest.mark.finding(
    "units: what systemd can do with a unit", "The unit file of the OS, which applies again when one leaves, is judged."
)
async def test_the_file_that_applies_again_is_judged() -> None:
    host = with_policy("restart", "auditd.service")
    own = UnitEntry("auditd.service", SERVICE)
    await at(config("a", {"/etc/x": "1"}, [own]), host=host)
    text = f"[Unit]\nRefuseManualStop=yes\n{SERVICE}"
    host.world.disk["/usr/lib/systemd/system/auditd.service"] = RegularFile(text.encode())
    host.world.done.clear()
    await at(config("b", {"/etc/x": "2"}), host=host)
    assert (host.phase, host.record.reason, host.world.done) == (Phase.DEGRADED, "PolicyInvalid", [])
    assert "auditd.service: it cannot be restarted, because RefuseManualStop=" in host.record.message


async def test_a_unit_of_the_config_is_judged_by_its_text() -> None:
    host = with_policy("reload", "own.service")
    await at(BASE, host=host)
    own = UnitEntry("own.service", SERVICE, enabled=True)
    assert "own.service: it cannot be reloaded" in await refused(host, config("b", {"/etc/x": "1"}, [own]))


async def test_a_plan_refuses_it_as_the_update_does() -> None:
    host = await at(BASE, host=new_host(nick=FakeUnit(file="alias", alias_of="real.service")))
    host.want(config("b", units=[UnitEntry("nick.service", enabled=True)]))
    with pytest.raises(InvalidInput, match="refused") as caught:
        await host.build().check(await host._load(host.wanted))
    assert [problem.path for problem in caught.value.problems] == ["unit:nick.service"]
