# SPDX-License-Identifier: Apache-2.0
"""Which unit a change concerns, masks or takes away, and what replaces an action that systemd rejects."""

from __future__ import annotations

import pytest

from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.change import Action, Change, ChangeKind
from nodeagent.core.plan.policy import DAEMON_RELOAD, UNLISTED, reload, restart
from nodeagent.core.plan.unit_changes import changed_unit, enabled_only, leaving_unit, masked_unit, possible

UNITS = "/etc/systemd/system"
OWN = "nodeagent.service"
TEXT = "[Service]\nExecStart=/bin/x\n"


def config(unit: UnitEntry | None) -> MachineConfig:
    return MachineConfig("c", units={unit.name: unit} if unit else {})


@pytest.mark.parametrize(
    ("domain", "key", "unit"),
    [
        ("unit", "a.service", "a.service"),
        ("file", f"{UNITS}/a.service", "a.service"),
        ("file", f"{UNITS}/a.service.d/x.conf", "a.service"),
        ("file", f"{UNITS}/a.d", ""),
        ("file", f"{UNITS}/README", ""),
        ("file", "/etc/systemd/systemd/a.service", ""),
        ("user", f"{UNITS}/a.service", ""),
    ],
)
def test_the_unit_of_a_change(domain: str, key: str, unit: str) -> None:
    assert changed_unit(Change(domain, key, ChangeKind.MODIFIED)) == unit


@pytest.mark.parametrize(
    ("was", "now", "masked"),
    [
        (None, UnitEntry("a.service", mask=True), True),
        (UnitEntry("a.service", TEXT), UnitEntry("a.service", mask=True), True),
        (UnitEntry("a.service", mask=True), UnitEntry("a.service", mask=True, enabled=False), False),
        (UnitEntry("a.service", mask=True), None, False),
        (None, UnitEntry(OWN, mask=True), False),
    ],
)
def test_a_unit_that_a_change_masks(was: UnitEntry | None, now: UnitEntry | None, masked: bool) -> None:
    name = (was or now or UnitEntry("")).name
    for domain in ("unit", "file"):
        unit = masked_unit(Change(domain, name, ChangeKind.MODIFIED), config(was), config(now))
        assert unit == (name if masked and domain == "unit" else "")


@pytest.mark.parametrize(
    ("was", "now", "leaves"),
    [
        (UnitEntry("a.service", TEXT), None, True),
        (UnitEntry("a.service", TEXT), UnitEntry("a.service", enabled=True), True),
        (UnitEntry("a.service", TEXT), UnitEntry("a.service", mask=True), False),
        (UnitEntry("a.service", TEXT), UnitEntry("a.service", f"{TEXT}User=x\n"), False),
        (UnitEntry("a.service", mask=True), None, False),
        (UnitEntry("a.service", TEXT, mask=True), None, False),
        (UnitEntry("a.service", dropins={"x.conf": TEXT}), None, False),
        (None, UnitEntry("a.service", TEXT), False),
        (UnitEntry(OWN, TEXT), None, False),
    ],
)
def test_a_unit_that_loses_its_file(was: UnitEntry | None, now: UnitEntry | None, leaves: bool) -> None:
    name = (was or now or UnitEntry("")).name
    unit = leaving_unit(Change("unit", name, ChangeKind.MODIFIED), config(was), config(now))
    assert unit == (name if leaves else "")
    assert leaving_unit(Change("user", name, ChangeKind.MODIFIED), config(was), config(now)) == ""


@pytest.mark.parametrize(
    ("path", "kind", "unit"),
    [
        (f"{UNITS}/a.service", ChangeKind.REMOVED, "a.service"),
        (f"{UNITS}/a.service", ChangeKind.MODIFIED, ""),
        (f"{UNITS}/a.service.d/x.conf", ChangeKind.REMOVED, ""),
        (f"{UNITS}/{OWN}", ChangeKind.REMOVED, ""),
        (f"{UNITS}/README", ChangeKind.REMOVED, ""),
        ("/etc/a.service", ChangeKind.REMOVED, ""),
    ],
)
def test_a_file_of_a_unit_that_leaves(path: str, kind: ChangeKind, unit: str) -> None:
    assert leaving_unit(Change("file", path, kind), config(None), config(None)) == unit


def test_an_entry_that_only_enables() -> None:
    for entry, only in (
        (UnitEntry("a.service", enabled=True), True),
        (UnitEntry("a.service", enabled=False), False),
        (UnitEntry("a.service", TEXT, enabled=True), False),
        (UnitEntry("a.service", enabled=True, dropins={"x.conf": TEXT}), False),
    ):
        assert enabled_only(config(entry), config(None)) == ({"a.service"} if only else set())
        assert enabled_only(config(entry), config(UnitEntry("a.service", enabled=False))) == set()


@pytest.mark.parametrize(
    ("actions", "rejected", "instead", "problem"),
    [
        ((DAEMON_RELOAD, reload("a")), [], (DAEMON_RELOAD, reload("a")), ""),
        ((DAEMON_RELOAD, reload("a")), [reload("a")], (DAEMON_RELOAD, restart("a")), "a cannot be reloaded"),
        ((reload("a"), restart("a")), [reload("a")], (restart("a"),), "a cannot be reloaded"),
        ((reload("a"),), [reload("a"), restart("a")], UNLISTED, "a cannot be reloaded"),
        ((restart("a"),), [restart("a")], UNLISTED, "a cannot be restarted"),
    ],
)
def test_an_action_that_systemd_rejects(
    actions: tuple[Action, ...], rejected: list[Action], instead: tuple[Action, ...], problem: str
) -> None:
    assert possible(actions, rejected) == (instead, problem)
