# SPDX-License-Identifier: Apache-2.0
"""What the executor does to units by their type, and to those that a stop or a restart takes along."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.agent.plan_answer import plan_answer
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.policy import DAEMON_RELOAD, NONE, Entry, Policy, restart
from nodeagent.update.next.preflight import Preflight
from nodeagent.update.states import Phase
from tests.world import FakeUnit, World
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

RESTARTED = ("app.service", "app.socket", "new.service", "pod.slice", "grp.target")
POLICY = Policy(
    files={
        "/etc/quiet": Entry("/etc/quiet", (NONE,)),
        "/etc/app": Entry("/etc/app", (restart("app.service"),)),
        "/etc/gen": Entry("/etc/gen", (DAEMON_RELOAD, restart("gen.service"))),
    },
    units={unit: Entry(unit, (DAEMON_RELOAD, restart(unit))) for unit in RESTARTED}
    | {"lock.service": Entry("lock.service", (DAEMON_RELOAD,)), "keep.service": Entry("keep.service", (NONE,))},
)
QUIET = {"/etc/quiet/q": "1"}
A = config("a", QUIET)
TEXT = "[Service]\nExecStart=/bin/app\n"


async def at(units: dict[str, FakeUnit], first: MachineConfig = A) -> Host:
    host = Host(World(units=units), policy=POLICY)
    host.want(first)
    await host.settle()
    assert host.phase is Phase.IDLE
    host.world.done.clear()
    return host


async def to(host: Host, new: MachineConfig) -> Any:
    host.want(new)
    await host.settle()
    return host.world.history[-1]


async def notes_of(host: Host, new: MachineConfig) -> list[str]:
    """Return the notes of the plan."""
    ports = host.ports()
    preflight = Preflight(ports, host.limits, (), host._policy, host.on_drift, host._view)
    known = [await host._load(host.world.current)]
    update = await preflight.prepare(await host._load(host.add(new)), known, dirty=False, first=False)
    answer = await plan_answer(ports, update, diff=False, private=False)
    notes: list[str] = answer["notes"]
    return notes


@pytest.mark.finding("units: slices and scopes", "A slice, a scope or a target is not stopped when its file leaves.")
@pytest.mark.parametrize("unit", ["pod.slice", "grp.target"])
async def test_what_groups_units_is_not_stopped_when_it_leaves(unit: str) -> None:
    group = FakeUnit(takes_along=("crio.service",))
    host = await at({"crio.service": FakeUnit()}, config("a", QUIET, [UnitEntry(unit, contents="[Unit]\n")]))
    host.world.units[unit].active, host.world.units[unit].takes_along = "active", group.takes_along
    entry = await to(host, config("b", QUIET))
    assert (entry.outcome, entry.reboots, host.actions()) == ("done", 0, ["daemon-reload"])
    assert host.world.units["crio.service"].active == host.world.units[unit].active == "active"


SOCKET = UnitEntry(
    "app.socket", contents="[Socket]\nListenStream=/run/a\n[Install]\nWantedBy=sockets.target\n", enabled=True
)
SERVICE = UnitEntry("app.service", contents=TEXT)


async def with_socket(*, running: bool) -> Host:
    units = {
        "app.socket": FakeUnit(triggers=("app.service",)),
        "app.service": FakeUnit(active="active" if running else "inactive", triggered_by=("app.socket",)),
    }
    return await at(units)


@pytest.mark.finding("units: sockets and their services", "A socket is restarted while its service is stopped.")
@pytest.mark.parametrize("running", [True, False])
async def test_a_socket_is_restarted_with_its_service(running: bool) -> None:
    host = await with_socket(running=running)
    entry = await to(host, config("b", QUIET, [SOCKET]))
    assert (entry.outcome, entry.reboots) == ("done", 0)
    around = ["stop app.service"] * running, ["start app.service"] * running
    assert host.actions() == ["daemon-reload", *around[0], "restart app.socket", *around[1]]
    assert host.world.units["app.service"].active == ("active" if running else "inactive")


@pytest.mark.finding(
    "units: sockets and their services", "A socket and its service that change together are each started once."
)
async def test_a_socket_that_changes_with_its_service() -> None:
    host = await with_socket(running=True)
    entry = await to(host, config("b", QUIET, [SOCKET, SERVICE]))
    assert (entry.outcome, entry.reboots) == ("done", 0)
    assert host.actions() == ["daemon-reload", "stop app.service", "restart app.socket", "start app.service"]


async def test_a_socket_and_its_service_despite_kills() -> None:
    undisturbed = await with_socket(running=True)
    undisturbed.world.calls = 0
    await to(undisturbed, config("b", QUIET, [SOCKET, SERVICE]))
    for call in range(1, undisturbed.world.calls + 1, 2):
        host = await with_socket(running=True)
        host.world.calls = 0
        host.want(config("b", QUIET, [SOCKET, SERVICE]))
        await host.kill_at(call, power=False)
        await host.settle()
        assert (host.world.history[-1].outcome, host.world.history[-1].reboots) == ("done", 0), f"killed at {call}"
        assert host.world.units["app.service"].active == "active", f"killed at call {call}"
        assert host.actions().count("restart app.socket") == 1


@pytest.mark.finding(
    "units: sockets and their services", "The plan names the service that stops while its socket restarts."
)
async def test_the_plan_names_the_service_of_a_socket() -> None:
    host = await with_socket(running=True)
    found = await notes_of(host, config("b", QUIET, [SOCKET]))
    assert found == ["app.service restarts as well: app.socket cannot be restarted while it runs"]


@pytest.mark.finding(
    "units: units that leave", "A unit whose file leaves is stopped, whatever other changes of the update request."
)
@pytest.mark.parametrize(
    ("file", "unit"),
    [("app.service", "app.service"), ("app@.service", "app@1.service"), ("app@.service", "app@2.service")],
)
async def test_a_unit_that_leaves_with_its_files(file: str, unit: str) -> None:
    units = [UnitEntry(file, contents=TEXT), *([UnitEntry(unit, enabled=True)] if unit != file else [])]
    first = config("a", QUIET | {"/etc/app/x": "1"}, units)
    policy = replace(
        POLICY,
        files={**POLICY.files, "/etc/app": Entry("/etc/app", (restart(unit),))},
        units={file: Entry(file, (DAEMON_RELOAD, restart("app@1.service" if unit != file else file)))},
    )
    host = Host(World(), policy=policy)
    host.want(first)
    await host.settle()
    host.world.units[unit] = FakeUnit(brought=True)
    host.world.done.clear()
    entry = await to(host, config("b", QUIET))
    assert (entry.outcome, entry.message, entry.reboots) == ("done", "", 0)
    assert host.actions() == ["daemon-reload", f"stop {file}"]
    assert host.world.units[unit].active == "inactive"


@pytest.mark.finding(
    "units: enabled without a unit", "A timer, a path or a socket whose service is missing is a warning."
)
@pytest.mark.parametrize(
    ("name", "text", "service"),
    [
        ("b.timer", "[Timer]\nOnBootSec=1\n", "b.service"),
        ("b.timer", "[Timer]\nOnBootSec=1\nUnit=c.service\n", "c.service"),
        ("b.path", "[Path]\nPathExists=/run/x\n", "b.service"),
        ("b.socket", "[Socket]\nListenStream=/run/x\n", "b.service"),
        ("b.socket", "[Socket]\nListenStream=/run/x\nAccept=yes\n", "b@.service"),
        ("var-b.automount", "[Automount]\nWhere=/var/b\n", "var-b.mount"),
    ],
)
async def test_a_timer_without_its_service_is_a_warning(name: str, text: str, service: str) -> None:
    timer, other = UnitEntry(name, contents=text), UnitEntry(service, contents=TEXT)
    policy = replace(POLICY, units={each: Entry(each, (DAEMON_RELOAD,)) for each in (name, service)})
    host = await at({}, config("a", QUIET))
    host.policy = policy
    warning = (
        f"warning: unit:{name} starts {service}, which exists neither on this host nor in the config,"
        " so systemd does not start it"
    )  # fmt: skip
    with_timer, both, none = (
        config(each, QUIET, units) for each, units in (("t", [timer]), ("b", [timer, other]), ("n", []))
    )
    assert await notes_of(host, with_timer) == [warning]
    assert await notes_of(host, both) == []
    assert (await to(host, both)).message == ""
    assert await notes_of(host, with_timer) == [warning]
    assert await notes_of(host, none) == []
    assert await notes_of(host, config("q", {"/etc/quiet/q": "2"}, [timer, other])) == []
    await to(host, both)
    changed = replace(timer, contents=f"# Changed\n{text}")
    assert await notes_of(host, config("c", QUIET, [changed, other])) == []
    assert await notes_of(host, config("d", QUIET, [changed])) == [warning]


@pytest.mark.finding(
    "units: units that leave", "A revert starts the instances again that it stopped with their template."
)
async def test_a_template_that_leaves_and_comes_back() -> None:
    units = [UnitEntry("app@.service", contents=TEXT), UnitEntry("app@1.service", enabled=True)]
    host = await at({"app.service": FakeUnit()}, config("a", QUIET, units))
    host.policy = replace(POLICY, units={"app@.service": Entry("app@.service", (DAEMON_RELOAD,))})
    host.world.units["app@1.service"] = FakeUnit(brought=True)
    host.world.units["app.service"].fail_restarts = 1
    host.limits = replace(host.limits, may_reboot=False)
    entry = await to(host, config("b", QUIET | {"/etc/app/x": "2"}))
    assert entry.outcome == "reverted"
    assert host.world.units["app@1.service"].active == "active"


@pytest.mark.finding("units: masks", "A unit that is masked is stopped if the policy has an action for it.")
@pytest.mark.parametrize("unit", ["app.service", "lock.service"])
async def test_a_mask_stops_a_unit_that_runs(unit: str) -> None:
    host = await at({unit: FakeUnit()})
    entry = await to(host, config("b", QUIET, [UnitEntry(unit, mask=True)]))
    assert (entry.outcome, host.actions()) == ("done", ["daemon-reload", f"stop {unit}"])
    assert host.world.units[unit].active == "inactive"


async def test_a_mask_that_is_reverted_starts_the_unit_again() -> None:
    host = await at({"lock.service": FakeUnit(), "app.service": FakeUnit()})
    host.world.units["app.service"].fail_restarts = 1
    host.limits = replace(host.limits, may_reboot=False)
    entry = await to(host, config("b", QUIET | {"/etc/app/x": "2"}, [UnitEntry("lock.service", mask=True)]))
    assert entry.outcome == "reverted"
    assert host.world.units["lock.service"].active == "active"


@pytest.mark.finding("units: masks", "The plan and the history name a masked unit that runs on.")
async def test_a_mask_without_an_action_is_noted() -> None:
    new = config("b", QUIET, [UnitEntry("keep.service", mask=True)])
    host = await at({"keep.service": FakeUnit()})
    note = "keep.service is masked and runs on: no action of the plan stops it"
    assert await notes_of(host, new) == [note]
    entry = await to(host, new)
    assert (entry.outcome, entry.message, host.actions()) == ("done", note, [])
    assert host.world.units["keep.service"].active == "active"


@pytest.mark.finding("units: what stops along", "What a restart stops along is named by the plan and started again.")
async def test_a_unit_that_a_restart_stops_is_started_again() -> None:
    host = await at({"app.service": FakeUnit(stops=("b.service",)), "b.service": FakeUnit()})
    new = config("b", QUIET | {"/etc/app/x": "1"})
    assert await notes_of(host, new) == [
        "b.service stops as well, with app.service; it is started again afterwards if it can be"
    ]
    entry = await to(host, new)
    assert (entry.outcome, host.actions()) == ("done", ["restart app.service", "start b.service"])
    assert entry.message == "b.service was stopped with app.service, and started again"


@pytest.mark.finding(
    "units: what stops along", "What a restart stops along, and does not start again, is in the history."
)
async def test_a_unit_that_a_restart_stops_and_that_does_not_start() -> None:
    host = await at({"app.service": FakeUnit(stops=("b.service",)), "b.service": FakeUnit(fail_restarts=9)})
    entry = await to(host, config("b", QUIET | {"/etc/app/x": "1"}))
    assert (entry.outcome, entry.reboots) == ("done", 0)
    assert entry.message == ("b.service was stopped with app.service, and is not started again: b.service: job failed")


@pytest.mark.finding("units: what stops along", "A unit in conflict with a new one is named by the plan and reported.")
async def test_a_unit_in_conflict_is_reported() -> None:
    host = await at({"new.service": FakeUnit(active="inactive"), "victim.service": FakeUnit()})
    new = config("b", QUIET, [UnitEntry("new.service", contents=f"[Unit]\nConflicts=victim.service\n{TEXT}")])
    assert await notes_of(host, new) == ["victim.service stops: it conflicts with new.service, which is started"]
    for name, other in (("new.service", "victim.service"), ("victim.service", "new.service")):
        host.world.units[name].conflicts = (other,)
    entry = await to(host, new)
    assert entry.outcome == "done"
    assert entry.message == (
        "victim.service was stopped with new.service, and is not started again: it conflicts with new.service"
    )
    assert host.world.units["victim.service"].active == "inactive"


@pytest.mark.finding(
    "units: what stops along", "A unit that is a part of one that leaves is started again if a boot would start it."
)
@pytest.mark.parametrize(("file", "again"), [("enabled", True), ("static", False)])
async def test_a_part_of_a_unit_that_leaves(file: str, again: bool) -> None:
    host = await at({"part.service": FakeUnit(file=file)}, config("a", QUIET, [SERVICE]))
    host.world.units["app.service"].active = "active"
    host.world.units["app.service"].takes_along = ("part.service",)
    entry = await to(host, config("b", QUIET))
    assert (entry.outcome, "start part.service" in host.actions()) == ("done", again)
    assert ("no unit that runs starts it" in entry.message) is not again


@pytest.mark.finding(
    "units: proof after an update", "A generated unit that the new files no longer make fails the update."
)
async def test_a_unit_that_a_generator_no_longer_makes() -> None:
    class Generated(FakeUnit):
        @property
        def load(self) -> str:
            return "not-found" if host.world.disk.get("/etc/gen/x") != RegularFile(b"1") else "loaded"

        @load.setter
        def load(self, value: str) -> None: ...

    host = await at({}, config("a", {"/etc/gen/x": "1"}))
    host.world.units["gen.service"] = Generated(file="generated")
    entry = await to(host, config("b", {"/etc/gen/x": "broken"}))
    assert (entry.outcome, entry.reason, entry.reboots) == ("reverted", "UnitNotFound", 0)
    assert host.world.disk["/etc/gen/x"] == RegularFile(b"1")
    host.world.units["gen.service"].file = ""
    entry = await to(host, config("c", QUIET))
    assert (entry.outcome, host.world.units["gen.service"].active) == ("done", "inactive")


@pytest.mark.finding("units: units that leave", "The plan of a unit that leaves has a Stop in place of the Restart.")
async def test_a_plan_without_a_host_says_what_happens() -> None:
    plan = make_plan(config("a", units=[SERVICE]), A, POLICY)
    assert [str(action.type) for action in plan.actions] == ["DaemonReload", "Stop"]


async def test_a_unit_of_which_the_os_has_a_file_is_restarted_when_it_leaves() -> None:
    host = await at({}, config("a", QUIET, [SERVICE]))
    host.world.disk["/usr/lib/systemd/system/app.service"] = RegularFile(b"")
    host.world.units["app.service"] = FakeUnit()
    entry = await to(host, config("b", QUIET))
    assert (entry.outcome, host.actions()) == ("done", ["daemon-reload", "restart app.service"])
