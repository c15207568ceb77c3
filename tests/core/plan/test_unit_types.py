# SPDX-License-Identifier: Apache-2.0
"""The plan does to a unit of each type what the table says."""

from __future__ import annotations

import itertools

import pytest

from nodeagent.core.config.machineconfig import UnitEntry
from nodeagent.core.config.unit_names import UNIT_TYPES
from nodeagent.core.plan.change import Action, ActionType
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.policy import DAEMON_RELOAD, DRAIN, NONE, Entry, Policy, reload, restart
from nodeagent.core.plan.sides import HostView
from nodeagent.core.plan.unit_types import TYPES, UnitStep, order_of
from tests.world.run import config

LEAVES = pytest.mark.finding(
    "units: slices and scopes", "A slice, a scope or a target is not stopped when its file leaves."
)
ENTRIES = {
    "none": (NONE,),
    "daemon-reload": (DAEMON_RELOAD,),
    "restart": (DAEMON_RELOAD, restart("{}")),
    "reload": (DAEMON_RELOAD, reload("{}")),
}


def planned(unit: str, was: UnitEntry | None, now: UnitEntry | None, entry: str, *, other: bool = False) -> list[str]:
    actions = tuple(Action(each.type, each.unit.format(unit)) for each in ENTRIES[entry])
    old, new = (config(name, units=[each] if each else []) for name, each in (("a", was), ("b", now)))
    host = HostView(other_unit_files=frozenset({unit} if other else ()))
    plan = make_plan(old, new, Policy(units={unit: Entry(unit, actions)}), host=host)
    assert set(plan.actions) == {Action(a.type, a.unit, (f"unit:{unit}",)) for a in plan.changes[0].actions}
    return [f"{action.type} {action.unit}".strip() for action in plan.actions]


def test_every_type_is_in_the_table() -> None:
    assert set(TYPES) == set(UNIT_TYPES)


@LEAVES
@pytest.mark.finding("units: units that leave", "A mount whose file leaves is unmounted, whatever its entry requests.")
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("kind", TYPES)
def test_a_unit_whose_file_leaves(kind: str, entry: str) -> None:
    unit = f"x.{kind}"
    stops = UnitStep.STOP in TYPES[kind].leaves
    expected = ["DaemonReload"] if entry != "none" or stops else ["None"]
    found = planned(unit, UnitEntry(unit, contents="[Unit]\n"), None, entry)
    assert found == [*expected, *[f"Stop {unit}"] * stops]
    assert stops is (kind not in ("slice", "scope", "target", "device"))


@pytest.mark.parametrize("kind", TYPES)
def test_where_the_host_has_another_file_the_entry_decides(kind: str) -> None:
    unit = f"x.{kind}"
    found = planned(unit, UnitEntry(unit, contents="[Unit]\n"), None, "restart", other=True)
    restarts = UnitStep.RESTART in TYPES[kind].restart
    assert found == ["DaemonReload", *[f"Restart {unit}"] * restarts]


@pytest.mark.finding("units: masks", "A unit that is masked is stopped if the policy has an action for it.")
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("kind", TYPES)
def test_a_unit_that_is_masked(kind: str, entry: str) -> None:
    unit = f"x.{kind}"
    stops = UnitStep.STOP in TYPES[kind].masked and entry != "none"
    for was in (None, UnitEntry(unit, enabled=True), UnitEntry(unit, contents="[Unit]\n")):
        found = planned(unit, was, UnitEntry(unit, mask=True), entry)
        assert found == ["None" if entry == "none" else "DaemonReload", *[f"Stop {unit}"] * stops]
    # Another change of a unit that is masked already.
    again = planned(unit, UnitEntry(unit, mask=True), UnitEntry(unit, mask=True, enabled=False), entry)
    assert not any(action.startswith("Stop") for action in again)


@pytest.mark.parametrize("kind", TYPES)
def test_a_restart_of_a_unit_whose_file_stays(kind: str) -> None:
    unit = f"x.{kind}"
    found = planned(unit, UnitEntry(unit, contents="[Unit]\n"), UnitEntry(unit, contents="[Unit]\n#\n"), "restart")
    restarts = UnitStep.RESTART in TYPES[kind].restart
    assert found == ["DaemonReload", *[f"Restart {unit}"] * restarts]


@pytest.mark.finding(
    "units: what systemd can do with a unit",
    "A job for a changed unit comes after a daemon-reload, whatever its entry lists.",
)
@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("/etc/systemd/system/x.service.d/10.conf", True),
        ("/etc/containers/systemd/x.container", True),
        ("/etc/fstab", True),
        ("/etc/x", False),
    ],
)
def test_a_daemon_reload_comes_before_the_job(path: str, *, read: bool) -> None:
    for action in (restart("x.service"), reload("x.service")):
        policy = Policy(files={path: Entry(path, (DRAIN, action))}, units={"x.service": Entry("x.service", (action,))})
        for old, new in itertools.permutations((config("a"), config("b", {path: "1"}))):
            found = [str(each.type) for each in make_plan(old, new, policy).actions]
            assert found == ["Drain", *["DaemonReload"] * read, action.type]
    stopped = make_plan(config("a", units=[UnitEntry("x.service", contents="[Unit]\n")]), config("b"), policy)
    assert [str(each.type) for each in stopped.actions] == ["DaemonReload", "Stop"]


@pytest.mark.finding("units: sockets and their services", "A socket restarts before its service.")
def test_what_starts_others_on_demand_comes_first() -> None:
    names = ["a.service", "a.socket", "b.mount", "b.automount", "c.timer", "c.service"]
    assert sorted(names, key=order_of) == ["a.socket", "b.automount", "c.timer", "a.service", "b.mount", "c.service"]
    units = [UnitEntry(name, contents="[Unit]\n") for name in ("a.service", "a.socket")]
    policy = Policy(units={unit.name: Entry(unit.name, (DAEMON_RELOAD, restart(unit.name))) for unit in units})
    both, none = config("both", units=units), config("none")
    for old, new, verb in ((none, both, ActionType.RESTART), (both, none, ActionType.STOP)):
        actions = [action for action in make_plan(old, new, policy).actions if action.unit]
        assert [(action.type, action.unit) for action in actions] == [(verb, "a.socket"), (verb, "a.service")]
