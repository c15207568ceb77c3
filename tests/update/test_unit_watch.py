# SPDX-License-Identifier: Apache-2.0
"""One judge of a unit: the same verdict after an action, a fallback, a planned reboot and a revert."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nodeagent import domains
from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import MachineConfig, UnitEntry
from nodeagent.core.plan.policy import DAEMON_RELOAD, NONE, Entry, Policy, restart
from nodeagent.update.states import Phase
from tests.world import FakeUnit, World
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

POLICY = Policy(
    files={
        "/etc/quiet": Entry("/etc/quiet", (NONE,)),
        "/etc/app": Entry("/etc/app", (restart("app.service"),)),
    },
    units={"new.service": Entry("new.service", (DAEMON_RELOAD, restart("new.service")))},
)
APP = UnitEntry("app.service", dropins={"10-x.conf": "[Service]\nEnvironment=A=1\n"})
OLD = {"/etc/quiet/q": "1", "/etc/app/x": "1"}
BROKEN = RegularFile(b"2")
A = config("a", OLD)
RESTARTS = config("b", OLD | {"/etc/app/x": "2"})
# The entry of the unit is unlisted, and so is the file.
REBOOTS = config("b", OLD | {"/etc/app/x": "2", "/etc/other": "1"}, [APP])


async def at(units: dict[str, FakeUnit], first: MachineConfig = A) -> Host:
    host = Host(World(units=units), policy=POLICY)
    host.want(first)
    await host.settle()
    assert host.phase is Phase.IDLE
    return host


async def to(host: Host, new: MachineConfig) -> Any:
    host.want(new)
    await host.settle()
    return host.world.history[-1]


def after_boot(host: Host, change: Callable[[], None]) -> None:
    """Change the units at the end of each boot, as its jobs would."""
    start = host.world._start_units

    def started() -> None:
        start()
        change()

    object.__setattr__(host.world, "_start_units", started)


@pytest.mark.finding("units: automatic restarts", "A service that comes up by Restart= is waited for after an action.")
@pytest.mark.parametrize("job", ["fails", "is done"])
async def test_a_service_that_comes_up_at_its_second_try(job: str) -> None:
    app = FakeUnit()
    host = await at({"app.service": app})
    app.starts_again_after = 20
    app.fail_restarts, app.dies_after = (1, None) if job == "fails" else (0, 1)
    entry = await to(host, RESTARTS)
    assert (entry.outcome, entry.reboots, app.active, app.restarts) == ("done", 0, "active", 1)


@pytest.mark.finding(
    "units: automatic restarts", "A service that comes up by Restart= is waited for after a fallback as well."
)
async def test_a_service_that_comes_up_at_its_second_try_after_a_fallback() -> None:
    app = FakeUnit()
    host = await at({"app.service": app})
    app.fail_restarts = 1

    def again() -> None:
        app.active, app.sub = "activating", "auto-restart"
        app.up_at = asyncio.get_running_loop().time() + 20

    after_boot(host, again)
    entry = await to(host, RESTARTS)
    assert (entry.outcome, entry.reboots) == ("done-after-fallback", 1)


@pytest.mark.finding(
    "units: scripts that cannot start", "The history has the exit status of the unit that failed the update."
)
@pytest.mark.parametrize("fails", ["restart", "later"])
async def test_the_history_has_the_exit_status(fails: str) -> None:
    app = FakeUnit(result="exit-code", end="exit status 203")
    host = await at({"app.service": app})
    host.limits = replace(host.limits, may_reboot=False)
    app.fail_restarts, app.dies_after = (9, None) if fails == "restart" else (0, 1)
    entry = await to(host, RESTARTS)
    assert (entry.outcome, entry.failed_unit) == ("degraded", "app.service")
    assert entry.message.count("exit status 203") == 1, entry.message


@pytest.mark.finding("units: automatic restarts", "A service that Restart= starts without end does not stay up.")
async def test_a_crash_loop_is_no_success() -> None:
    class Crashing(FakeUnit):
        """It dies each 3 seconds, and is active in between."""

        @property
        def restarts(self) -> int:
            return int(asyncio.get_running_loop().time() / 3) if self.invocation > first else 0

        @restarts.setter
        def restarts(self, value: int) -> None: ...

    app = Crashing.__new__(Crashing)
    first = 99
    app.__init__()  # type: ignore[misc]  # ``restarts`` needs ``first``
    host = await at({"app.service": app})
    first = app.invocation
    host.limits = replace(host.limits, may_reboot=False)
    entry = await to(host, RESTARTS)
    assert (entry.outcome, entry.reason) == ("degraded", "UnitUnhealthy")
    assert "app.service did not stay up" in entry.message


@pytest.mark.finding("units: automatic restarts", "A service that Restart= starts without end does not stay up.")
@pytest.mark.parametrize(
    ("sub", "restarts", "reason"),
    [
        ("auto-restart", 9, "UnitUnhealthy"),
        ("start", 9, "UnitUnhealthy"),
        ("start", 0, "VerifyLate"),
    ],
)
async def test_a_service_that_ends_before_it_is_up_is_not_late(sub: str, restarts: int, reason: str) -> None:
    app = FakeUnit(type="notify")
    host = await at({"app.service": app})
    host.limits = replace(host.limits, may_reboot=False)
    host.want(RESTARTS)
    task = asyncio.create_task(host.settle())
    while host.phase is not Phase.VERIFYING:
        await asyncio.sleep(0.1)
    app.active, app.sub, app.restarts = "activating", sub, restarts
    await task
    entry = host.world.history[-1]
    assert entry.reason == reason
    assert "app.service" in entry.message


@pytest.mark.finding("units: automatic restarts", "A service that Restart= starts without end does not stay up.")
@pytest.mark.parametrize(
    ("active", "sub", "restarts", "reboots"),
    [
        ("activating", "auto-restart", 9, 0),
        ("activating", "start", 9, 0),
        ("active", "running", 9, 0),
        ("activating", "start", 0, 1),
        ("active", "running", 0, 1),
    ],
)
async def test_the_end_of_the_time_may_fall_anywhere_into_a_crash_loop(
    active: str, sub: str, restarts: int, reboots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As of a program that reads the same configuration after a boot.
    monkeypatch.setattr(domains, "curable", lambda failure: failure.result != "exit-code")
    web = FakeUnit(type="notify")
    policy = Policy(files={"/etc/web": Entry("/etc/web", (restart("web.service"),))})
    host = Host(World(units={"web.service": web}), policy=policy)
    host.want(config("a", {"/etc/web/x": "1"}))
    await host.settle()
    host.want(config("b", {"/etc/web/x": "2"}))
    task = asyncio.create_task(host.settle())
    while host.phase is not Phase.VERIFYING:
        await asyncio.sleep(0.1)
    web.active, web.sub, web.health = active, sub, "connection refused"
    web.result = "exit-code" if sub == "auto-restart" else "success"
    await asyncio.sleep(3)
    web.restarts = restarts
    await task
    assert host.world.history[-1].reboots == reboots


@pytest.mark.finding("units: oneshots", "A oneshot that succeeded before and fails now is a failure in every plan.")
@pytest.mark.parametrize("new", [RESTARTS, REBOOTS], ids=["restart", "reboot"])
async def test_a_oneshot_that_fails(new: MachineConfig) -> None:
    app = FakeUnit(type="oneshot", active="inactive")
    host = await at({"app.service": app})
    app.fail_restarts = 1

    def failed() -> None:
        app.active, app.result = ("failed", "exit-code") if host.world.disk["/etc/app/x"] == BROKEN else (
            "inactive", "success",
        )  # fmt: skip

    after_boot(host, failed)
    entry = await to(host, new)
    assert (entry.outcome, entry.to_name) == ("reverted", "b"), entry.message
    assert host.configs[host.world.current].name == "a"


STATIC = FakeUnit(file="static", needs=("dep.service",), wanted_by=("multi-user.target",))


@pytest.mark.finding(
    "units: proof after an update", "A unit that ran before an update and is down after its reboot is not verified."
)
@pytest.mark.parametrize("file", ["static", "generated", "disabled", "enabled"])
@pytest.mark.parametrize("new", [RESTARTS, REBOOTS], ids=["fallback", "planned reboot"])
async def test_a_unit_whose_requirement_fails_after_the_reboot(new: MachineConfig, file: str) -> None:
    app, dep = replace(STATIC, file=file), FakeUnit(type="oneshot", active="inactive", file="static")
    host = await at({"app.service": app, "dep.service": dep, "multi-user.target": FakeUnit()})
    app.fail_restarts = 1

    def boot() -> None:
        broken = host.world.disk["/etc/app/x"] == BROKEN
        dep.active, app.active = ("failed", "inactive") if broken else ("inactive", "active")

    after_boot(host, boot)
    entry = await to(host, new)
    assert (entry.outcome, host.configs[host.world.current].name) == ("reverted", "a"), entry.message
    assert "app.service is inactive, because dep.service failed" in entry.message
    assert app.active == "active"


@pytest.mark.finding(
    "units: proof after an update", "What ran before and no boot starts is started after the reboot, then judged."
)
@pytest.mark.parametrize("cured", [True, False])
@pytest.mark.parametrize("kind", ["simple", "oneshot"])
@pytest.mark.parametrize("new", [RESTARTS, REBOOTS], ids=["fallback", "planned reboot"])
async def test_a_unit_that_no_boot_starts(new: MachineConfig, kind: str, *, cured: bool) -> None:
    app = FakeUnit(type=kind, file="disabled")
    host = await at({"app.service": app})
    app.fail_restarts = 1

    def boot() -> None:
        broken = host.world.disk["/etc/app/x"] == BROKEN
        app.active, app.invocation, app.fail_restarts = "inactive", 0, int(broken and not cured)

    after_boot(host, boot)
    entry = await to(host, new)
    good = "done-after-fallback" if new is RESTARTS else "done"
    assert (entry.outcome, app.active) == (good if cured else "reverted", "active"), entry.message


@pytest.mark.parametrize("why", ["it has ended", "a target wants it"])
async def test_a_unit_that_a_boot_starts_is_not_started_again(why: str) -> None:
    app = FakeUnit(file="static", wanted_by=("multi-user.target",) if why == "a target wants it" else ())
    host = await at({"app.service": app, "multi-user.target": FakeUnit()})

    def boot() -> None:
        broken = host.world.disk["/etc/app/x"] == BROKEN
        app.active, app.invocation = ("inactive" if broken else "active"), 0 if app.wanted_by else 7

    after_boot(host, boot)
    entry = await to(host, REBOOTS)
    assert (entry.outcome, app.active) == ("reverted", "active"), entry.message
    assert "app.service ran before the reboot and is inactive" in entry.message


@pytest.mark.parametrize(("target", "outcome"), [("active", "reverted"), ("inactive", "done")])
async def test_a_unit_with_a_bus_name_has_to_run_if_a_target_of_the_boot_wants_it(target: str, outcome: str) -> None:
    app = FakeUnit(file="static", bus_name="org.app", wanted_by=("app.target",))
    host = await at({"app.service": app, "app.target": FakeUnit()})

    def boot() -> None:
        host.world.units["app.target"].active = target
        app.active, app.invocation = "inactive" if host.world.disk["/etc/app/x"] == BROKEN else "active", 0

    after_boot(host, boot)
    entry = await to(host, REBOOTS)
    assert entry.outcome == outcome, entry.message


@pytest.mark.finding("units: proof after an update", "What need not run after a reboot does not fail the update.")
@pytest.mark.parametrize(
    "app",
    [
        FakeUnit(active="inactive", file="static"),
        FakeUnit(active="failed", file="static"),
        FakeUnit(file="static", condition="ConditionPathExists=/x"),
        FakeUnit(file="static", triggered_by=("app.socket",)),
        FakeUnit(file="static", bus_name="org.app"),
        FakeUnit(type="oneshot", active="inactive", file="static"),
    ],
    ids=["inactive", "failed", "condition", "socket", "bus", "oneshot"],
)
async def test_a_unit_that_need_not_run(app: FakeUnit) -> None:
    host = await at({"app.service": FakeUnit()})
    host.world.units["app.service"] = app
    entry = await to(host, REBOOTS)
    assert (entry.outcome, entry.reboots) == ("done", 1)


@pytest.mark.parametrize("entry", [UnitEntry("app.service", mask=True), UnitEntry("app.service", enabled=False)])
async def test_a_unit_that_the_update_switches_off_need_not_run(entry: UnitEntry) -> None:
    host = await at({"app.service": FakeUnit()})
    ended = await to(host, config("b", OLD, [entry]))
    assert (ended.outcome, ended.reboots) == ("done", 1)


async def with_new(unit: FakeUnit, behind: tuple[str, ...], *, changed: bool = True) -> Any:
    """The end of an update with a reboot after which a unit is still starting."""
    name = "new.service" if changed else "other.service"
    unit = replace(unit, active="inactive", file="disabled", brought=changed)
    host = await at({"app.service": FakeUnit(), name: unit})
    text = "[Service]\n[Install]\nWantedBy=multi-user.target\n"
    units = [UnitEntry("new.service", contents=text, enabled=True)] if changed else [APP]

    def boot() -> None:
        there = "/etc/other" in host.world.disk
        host.world.units[name].active = "activating" if there else "inactive"
        host.world.start_jobs = {name: behind} if there else {}
        host.world.booting_until = 1e9 if there else 0

    after_boot(host, boot)
    return await to(host, config("b", OLD | {"/etc/other": "1"}, units))


@pytest.mark.finding(
    "units: starts without an end", "A new unit that never starts fails the update if it reports its readiness."
)
async def test_a_new_unit_that_never_reports_that_it_is_ready() -> None:
    entry = await with_new(FakeUnit(type="notify"), ())
    assert (entry.outcome, entry.reason) == ("reverted", "UnitUnhealthy")
    assert "new.service is still starting" in entry.message


@pytest.mark.finding(
    "units: starts without an end", "A new unit that never starts fails the update if others wait for it."
)
@pytest.mark.parametrize("kind", ["oneshot", "simple", "notify"])
async def test_a_new_unit_that_others_wait_for(kind: str) -> None:
    entry = await with_new(FakeUnit(type=kind), ("crio.service",))
    assert entry.outcome == "reverted"
    assert "new.service is still starting, and the start of crio.service waits for it" in entry.message


@pytest.mark.finding(
    "units: starts without an end", "A oneshot that still runs and blocks no other unit is good, with a note."
)
@pytest.mark.parametrize("kind", ["oneshot", "simple"])
async def test_a_new_unit_that_still_runs_and_blocks_none(kind: str) -> None:
    entry = await with_new(FakeUnit(type=kind), ())
    assert (entry.outcome, entry.message) == ("done", "new.service is still starting")


@pytest.mark.finding(
    "units: starts without an end", "Another unit that blocks the boot is a note with the jobs behind it."
)
async def test_another_unit_that_blocks_the_boot() -> None:
    entry = await with_new(FakeUnit(type="notify"), ("crio.service",), changed=False)
    assert entry.outcome == "done"
    assert entry.message == "other.service is still starting, and the start of crio.service waits for it"


@pytest.mark.finding(
    "units: proof after an update", "What ran before is remembered for every unit that the plan names or changes."
)
async def test_what_ran_before_outlives_kills() -> None:
    def boot(host: Host) -> Callable[[], None]:
        def change() -> None:
            broken = host.world.disk["/etc/app/x"] == BROKEN
            host.world.units["app.service"].active = "inactive" if broken else "active"

        return change

    for fuse in range(1, 40, 3):
        host = await at({"app.service": replace(STATIC, needs=())})
        after_boot(host, boot(host))
        host.want(REBOOTS)
        await host.kill_at(fuse, power=False)
        await host.settle()
        assert host.world.history[-1].outcome == "reverted", f"killed at call {fuse}"
