# SPDX-License-Identifier: Apache-2.0
"""The rule of the recommended policy about units: a start or a stop only where a boot would do the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.policy import merge
from nodeagent.core.plan.policy_parse import parse_policy
from nodeagent.core.plan.sides import HostView, Sides
from nodeagent.core.plan.unit_types import TYPES
from nodeagent.domains import default_policy, with_rules
from nodeagent.domains.units import DOMAIN

RECOMMENDED = Path(__file__).parents[2] / "systemd/usr/lib/nodeagent/policy-recommended.yaml"
POLICY = merge(default_policy(), with_rules(parse_policy(RECOMMENDED.read_bytes(), str(RECOMMENDED))))

TEXT = "[Service]\nExecStart=/bin/x\n[Install]\nWantedBy=multi-user.target\n"
VENDOR = {"/usr/lib/systemd/system/x.service": TEXT.encode()}


def entry(name: str = "x.service", contents: str | None = TEXT, **changes: Any) -> UnitEntry:
    return UnitEntry(name, contents, **{"enabled": True, **changes})


def planned(
    was: UnitEntry | None,
    now: UnitEntry | None,
    host: Mapping[str, bytes] | None = None,
    disabled_again: frozenset[str] = frozenset(),
) -> Plan:
    old, new = (MachineConfig(name, units={u.name: u} if u else {}) for name, u in (("a", was), ("b", now)))
    return make_plan(old, new, POLICY, host=HostView(host or {}, disabled_again=disabled_again))


def words(plan: Plan) -> list[str]:
    return [f"{action.type} {action.unit}".strip() for action in plan.actions]


START = ["DaemonReload", "Start x.service"]
STOP = ["DaemonReload", "Stop x.service"]
READ = ["DaemonReload"]
REBOOT = ["Drain", "Reboot"]


@pytest.mark.parametrize(
    ("was", "now", "actions"),
    [
        (None, entry(), START),
        (None, entry(enabled=None), START),
        (None, entry(enabled=False), READ),
        (None, entry(dropins={"a.conf": "[Service]\n"}), START),
        (entry(enabled=False), entry(), START),
        (entry(enabled=None), entry(), START),
        (entry(mask=True), entry(), START),
        (entry(mask=True), entry(enabled=False), READ),
        (entry(mask=True), entry(contents="[Unit]\n", mask=True), READ),
        (entry(), entry(enabled=False), STOP),
        (entry(enabled=None), entry(enabled=False), STOP),
        (entry(), entry(mask=True), STOP),
        (entry(), None, STOP),
        (None, entry(mask=True), REBOOT),
        (entry(), entry(enabled=None), REBOOT),
        (entry(), entry(contents=TEXT + "#\n"), REBOOT),
        (entry(), entry(dropins={"a.conf": "[Service]\n"}), REBOOT),
        (entry(mask=True), None, REBOOT),
        (None, entry(contents=None), REBOOT),
        (None, entry(contents=None, dropins={"a.conf": "[Service]\n"}), REBOOT),
    ],
)
def test_a_config_that_brings_the_unit(was: UnitEntry | None, now: UnitEntry | None, actions: list[str]) -> None:
    plan = planned(was, now)
    assert words(plan) == actions
    assert bool(plan.changes[0].why) == (actions == REBOOT), "a reboot has its reason"


@pytest.mark.parametrize(
    ("was", "now", "actions"),
    [
        (None, entry(contents=None), START),
        (None, entry(contents=None, enabled=False), STOP),
        (None, entry(contents=None, mask=True), STOP),
        (entry(contents=None), entry(contents=None, enabled=False), STOP),
        (entry(contents=None, mask=True), entry(contents=None), START),
        (entry(contents=None, enabled=False), entry(contents=None), START),
        # What the host had before comes back, and no config says what that is.
        (entry(contents=None), None, REBOOT),
        (entry(contents=None, mask=True), None, REBOOT),
        # The running unit has another text.
        (None, entry(), REBOOT),
    ],
)
def test_a_unit_of_the_os(was: UnitEntry | None, now: UnitEntry | None, actions: list[str]) -> None:
    assert words(planned(was, now, VENDOR)) == actions


@pytest.mark.parametrize(
    ("name", "text", "actions"),
    [
        ("x.service", TEXT, STOP),
        ("x@1.service", TEXT, ["DaemonReload", "Stop x@1.service"]),
        ("x.service", TEXT.replace("[Install]", "Type=oneshot\n[Install]"), REBOOT),
        ("x.service", f"{TEXT}Also=y.service\n", REBOOT),
        ("crio.service", TEXT, REBOOT),
        ("x.mount", TEXT, REBOOT),
        # Its file is not known, or leaves as well.
        ("x.service", "", REBOOT),
    ],
)
def test_a_unit_of_the_os_that_is_disabled_again(name: str, text: str, actions: list[str]) -> None:
    file = name.replace("@1", "@")
    host = {f"/usr/lib/systemd/system/{file}": text.encode()} if text else {}
    assert words(planned(entry(name, None), None, host, frozenset({name}))) == actions


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"[Unit]\nBefore=kubelet.service shutdown.target\n{TEXT}", "a boot starts it before kubelet.service"),
        (f"[Unit]\nBefore=network-pre.target\n{TEXT}", "a boot starts it before network-pre.target"),
        (f"[Unit]\nDefaultDependencies=no\n{TEXT}", "it belongs to the early boot or to the shutdown"),
        (f"[Unit]\nRefuseManualStart=yes\n{TEXT}", "RefuseManualStart= rejects a start on a running host"),
        (f"{TEXT}Also=x.socket\n", "[Install] also names x.socket"),
    ],
)
def test_what_only_a_boot_can_start(text: str, why: str) -> None:
    plan = planned(None, entry(contents=text))
    assert (words(plan), plan.changes[0].why) == (REBOOT, why)
    drop_in = planned(None, entry(dropins={"a.conf": text}))
    assert (words(drop_in), drop_in.changes[0].why) == (REBOOT, why)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT.replace("[Install]", "Type=oneshot\n[Install]"), "what a oneshot has done stays until a boot"),
        ("[Service]\nExecStop=/bin/x\n", "what a oneshot has done stays until a boot"),
        (f"[Unit]\nRefuseManualStop=yes\n{TEXT}", "RefuseManualStop= rejects a stop on a running host"),
    ],
)
@pytest.mark.parametrize("now", [{"enabled": False}, {"mask": True}, None])
def test_what_only_a_boot_can_stop(text: str, why: str, now: dict[str, Any] | None) -> None:
    plan = planned(entry(contents=text), None if now is None else entry(contents=text, **now))
    assert (words(plan), plan.changes[0].why) == (REBOOT, why)


@pytest.mark.parametrize(
    ("name", "why"),
    [("crio.service", "workloads may need it"), ("dbus.service", "nodeagent needs it until the boot")],
)
def test_what_the_host_needs_is_not_stopped(name: str, why: str) -> None:
    plan = planned(entry(name), entry(name, enabled=False))
    assert (words(plan), plan.changes[0].why) == (REBOOT, why)


@pytest.mark.parametrize("kind", TYPES)
def test_types_of_units(kind: str) -> None:
    name = f"x.{kind}"
    plan, why = planned(None, entry(name)), TYPES[kind].only_at_boot
    if kind in ("scope", "device"):
        # No config brings one, and the recommended policy has no entry for it.
        assert words(plan) == REBOOT
    elif why:
        assert (words(plan), plan.changes[0].why) == (REBOOT, why)
    else:
        assert words(plan) == ["DaemonReload", f"Start {name}"]
        assert words(planned(entry(name), entry(name, enabled=False))) == ["DaemonReload", f"Stop {name}"]


def test_a_unit_that_no_boot_starts_is_read_only() -> None:
    assert words(planned(None, entry(contents="[Service]\nExecStart=/bin/x\n"))) == READ


def test_templates_and_instances() -> None:
    host = {"/usr/lib/systemd/system/x@.service": TEXT.encode()}
    instance = entry("x@1.service", None)
    assert words(planned(None, instance, host)) == ["DaemonReload", "Start x@1.service"]
    assert words(planned(None, instance)) == REBOOT, "a machine without the template"
    template = entry("x@.service", enabled=None)
    assert words(planned(None, template)) == READ
    assert words(planned(None, entry("x@.service"))) == REBOOT
    both = MachineConfig("b", units={unit.name: unit for unit in (template, instance)})
    assert words(make_plan(MachineConfig("a"), both, POLICY)) == ["DaemonReload", "Start x@1.service"]


def test_an_alias_and_a_unit_of_a_generator_keep_the_reboot() -> None:
    assert words(planned(None, entry(contents=None), {"/run/systemd/generator/x.service": TEXT.encode()})) == REBOOT


def test_an_entry_of_the_admin_wins() -> None:
    policy = merge(POLICY, parse_policy(b"units: [{name: x*.service, actions: [{type: None}]}]"))
    new = MachineConfig("b", units={"x.service": entry()})
    assert words(make_plan(MachineConfig("a"), new, policy)) == ["None"]
    built_in = planned(entry("kubelet.service"), entry("kubelet.service", contents=TEXT + "#\n"))
    assert built_in.changes[0].policy == "default"


def test_only_files_of_changed_units_are_read() -> None:
    same = entry("y.service")
    old = MachineConfig("a", units={"y.service": same})
    new = MachineConfig("b", units={"y.service": same, "x@1.service": entry("x@1.service", None)})
    reads = DOMAIN.reads(Sides(old, new))
    assert {"/usr/lib/systemd/system/x@.service", "/etc/systemd/system/x@1.service.d/"} <= set(reads)
    assert not [path for path in reads if "y.service" in path]
    assert not DOMAIN.reads(Sides(old, old))
