# SPDX-License-Identifier: Apache-2.0
"""``Systemd`` against a manager that does all that the real one may do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from dbus_next import Variant

import nodeagent.host.systemd as module
from nodeagent.core.plan.unit_abilities import UnitAbilities
from nodeagent.core.plan.unit_relations import Relations
from nodeagent.errors import Retryable, ServiceUnavailable, Terminal, Unreachable
from nodeagent.host import systemd_jobs
from nodeagent.host.dbus.client import Bus
from nodeagent.host.systemd import Systemd
from nodeagent.host.systemd_jobs import BOOT_COMPLETE as OURS
from nodeagent.host.systemd_jobs import UnitJobFailed
from nodeagent.update.ports.host import Units
from tests.host.fake_systemd import PATH, FakeSystemd
from tests.support.fake_peer import DBusFault
from tests.support.fixtures import PrivateBus

pytestmark = pytest.mark.usefixtures("no_leaked_fds")


@pytest.fixture
async def manager(private_bus: PrivateBus) -> AsyncIterator[FakeSystemd]:
    manager = FakeSystemd()
    await manager.start(private_bus.address)
    yield manager
    await manager.stop()


@pytest.fixture
def systemd(bus: Bus, manager: FakeSystemd) -> Systemd:
    return Systemd(bus)


@pytest.mark.parametrize(
    ("state", "finished"),
    [("initializing", False), ("starting", False), ("running", True), ("degraded", True), ("maintenance", True)],
)
async def test_when_the_boot_is_over(systemd: Systemd, manager: FakeSystemd, state: str, finished: bool) -> None:
    manager.properties["SystemState"] = Variant("s", state)
    assert await systemd.boot_finished() is finished


@pytest.mark.parametrize(
    ("running", "finished"),
    [([], False), ([OURS], True), ([OURS, "slow.service"], False), (["slow.service"], False)],
)
async def test_what_waits_for_the_agent_is_no_part_of_the_boot(
    systemd: Systemd, manager: FakeSystemd, running: list[str], finished: bool
) -> None:
    """The agent would wait for the boot, and the boot for the agent."""
    manager.properties["SystemState"] = Variant("s", "starting")
    jobs = [("running", unit) for unit in running] + [("waiting", "boot-complete.target")]
    manager.start_jobs = [[i, unit, "start", state, f"/j/{i}", f"/u/{i}"] for i, (state, unit) in enumerate(jobs)]
    assert await systemd.boot_finished() is finished


async def never(_job: int, _unit: str) -> None:
    return


async def test_fulfils_the_port(systemd: Systemd) -> None:
    port: Units = systemd
    await port.restart("a.service", 5)


def unmet(*conditions: tuple[str, bool, bool, str, int], tested: int = 1) -> dict[str, Variant]:
    """Properties of a unit that systemd did not start."""
    return {
        "ActiveState": Variant("s", "inactive"),
        "SubState": Variant("s", "dead"),
        "InvocationID": Variant("ay", b""),
        "ConditionTimestampMonotonic": Variant("t", tested),
        "ConditionResult": Variant("b", False),
        "Conditions": Variant("a(sbbsi)", [list(condition) for condition in conditions]),
    }


@pytest.mark.finding(
    "units: start conditions", "The condition is named, although systemd unloads a unit that nothing refers to."
)
@pytest.mark.parametrize(
    ("properties", "said"),
    [
        (
            unmet(("ConditionArchitecture", False, False, "x86-64", 1), ("ConditionPathExists", False, True, "/x", -1)),
            "ConditionPathExists=!/x",
        ),
        (
            unmet(("ConditionUser", True, False, "root", -1), ("ConditionUser", True, False, "core", -1)),
            "ConditionUser=root",
        ),
        (unmet(), "Condition"),
        (unmet(tested=0), ""),
        ({"ActiveState": Variant("s", "inactive"), "Result": Variant("s", "exec-condition")}, "ExecCondition"),
        ({}, ""),
    ],
    ids=["negated", "one of several", "of a newer systemd", "never tried", "ExecCondition", "met"],
)
async def test_a_start_condition_that_is_not_met_is_named(
    systemd: Systemd, manager: FakeSystemd, properties: dict[str, Variant], said: str
) -> None:
    """systemd calls the job done. It forgets why a unit was not started when nothing refers to that unit."""
    manager.units["a.service"] = properties
    manager.unreferenced.add("a.service")
    assert await systemd.restart("a.service", 5) == said
    assert manager.references == []
    manager.unreferenced.clear()
    assert (await systemd.state("a.service")).condition == said


@pytest.mark.finding(
    "units: scripts that cannot start", "The end of a unit that failed is its exit status or its signal."
)
@pytest.mark.parametrize(
    ("result", "code", "status", "ended", "sub", "expected"),
    [
        ("exit-code", 1, 203, 9, "failed", "exit status 203"),
        ("signal", 2, 9, 9, "failed", "ended by SIGKILL"),
        ("core-dump", 3, 11, 9, "failed", "ended by SIGSEGV"),
        # ExecStartPre= failed, and the main program of the run before had ended well, or with another status.
        ("exit-code", 1, 0, 9, "failed", ""),
        ("exit-code", 1, 143, 3, "failed", ""),
        ("exit-code", 2, 15, 9, "failed", ""),
        ("exit-code", 1, 1, 3, "auto-restart", "exit status 1"),
        ("timeout", 2, 15, 9, "failed", ""),
        ("success", 1, 0, 9, "dead", ""),
    ],
)
async def test_how_a_program_failed(
    systemd: Systemd, manager: FakeSystemd, result: str, code: int, status: int, ended: int, sub: str, expected: str
) -> None:
    manager.units["a.service"] = {
        "SubState": Variant("s", sub),
        "Result": Variant("s", result),
        "ExecMainCode": Variant("i", code),
        "ExecMainStatus": Variant("i", status),
        "ExecMainExitTimestampMonotonic": Variant("t", ended),
        "InactiveExitTimestampMonotonic": Variant("t", 7),
    }
    state = await systemd.state("a.service")
    assert state.end == expected
    assert state.how == (f"{result}, {expected}" if expected else result)


async def test_an_assertion_that_is_not_met_is_a_failure(systemd: Systemd, manager: FakeSystemd) -> None:
    manager.job_script = lambda job, unit: manager.finish(job, unit, "assert")
    with pytest.raises(UnitJobFailed, match="Assert setting") as caught:
        await systemd.restart("a.service", 5)
    assert caught.value.reason == "JobAssert"
    assert manager.references == []


@pytest.mark.parametrize("verb", ["reload", "restart"])
async def test_a_job_that_is_over_before_the_answer(systemd: Systemd, manager: FakeSystemd, verb: str) -> None:
    for _ in range(2):  # the second time we are subscribed already
        await getattr(systemd, verb)("a.service", 5)
    assert manager.members().count({"reload": "ReloadUnit", "restart": "RestartUnit"}[verb]) == 2


@pytest.mark.parametrize(("verb", "resets"), [("restart", True), ("start", True), ("reload", False)])
async def test_earlier_failures_are_forgotten_first(
    systemd: Systemd, manager: FakeSystemd, verb: str, resets: bool
) -> None:
    """Or a unit at its own start limit would refuse the start that is to cure it."""
    await getattr(systemd, verb)("a.service", 5)
    others = ("LoadUnit", "RefUnit", "UnrefUnit")
    asked = [member for member in manager.members() if member.endswith("Unit") and member not in others]
    assert asked == ["ResetFailedUnit"] * resets + [f"{verb.capitalize()}Unit"]


async def test_a_job_that_takes_a_while(systemd: Systemd, manager: FakeSystemd) -> None:
    async def later(job: int, unit: str) -> None:
        await manager.finish(job - 50, "other.service", "failed")
        asyncio.get_running_loop().call_later(
            0.1, lambda: manager._tasks.add(asyncio.ensure_future(manager.finish(job, unit, "done")))
        )

    manager.job_script = later
    await systemd.restart("a.service", 5)


@pytest.mark.parametrize(
    "result", ["failed", "timeout", "canceled", "dependency", "skipped", "invalid", "assert", "once", "from-the-future"]
)
async def test_a_job_that_ends_badly(systemd: Systemd, manager: FakeSystemd, result: str) -> None:
    manager.job_script = lambda job, unit: manager.finish(job, unit, result)
    with pytest.raises(UnitJobFailed, match=result) as caught:
        await systemd.restart("a.service", 5)
    assert (caught.value.unit, caught.value.result) == ("a.service", result)
    assert caught.value.reason == "Job" + result.capitalize()


@pytest.mark.parametrize(("unit", "reason"), [("none.service", "UnitNotFound"), ("masked.service", "UnitMasked")])
async def test_a_unit_that_takes_no_job(systemd: Systemd, unit: str, reason: str) -> None:
    with pytest.raises(UnitJobFailed, match=unit) as caught:
        await systemd.restart(unit, 5)
    assert (caught.value.reason, caught.value.result) == (reason, "")


async def test_a_late_job_is_canceled(systemd: Systemd, manager: FakeSystemd) -> None:
    manager.job_script = never
    with pytest.raises(UnitJobFailed, match=r"after 1\.5 s and was canceled") as caught:
        await systemd.restart("a.service", 1.5)
    assert (caught.value.reason, caught.value.result) == ("JobTimeout", "timeout")
    assert not manager.jobs


async def test_a_late_job_that_is_done_while_we_cancel_it_is_done(systemd: Systemd, manager: FakeSystemd) -> None:
    async def done_now(message: Any) -> None:
        (job,) = message.body
        await manager.finish(job, "a.service", "done")
        raise DBusFault("org.freedesktop.systemd1.NoSuchJob")

    manager.job_script = never
    manager.on("CancelJob", done_now)
    await systemd.restart("a.service", 0.5)


async def test_a_signal_that_never_came(
    systemd: Systemd, manager: FakeSystemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_POLL", 0.1)
    monkeypatch.setattr(module, "_GRACE", 0.05)
    ends = iter([False, True])

    async def silent_once(job: int, unit: str) -> None:
        if next(ends):
            await manager.finish(job, unit, "done")
        else:
            manager.jobs.clear()
            manager.properties["Job"] = Variant("(uo)", [0, "/"])

    manager.job_script = silent_once
    await systemd.restart("a.service", 5)
    assert manager.members().count("RestartUnit") == 2


async def drop(manager: FakeSystemd, private_bus: PrivateBus) -> FakeSystemd:
    """The bus goes away and comes back, and so does a manager with the same jobs and units."""
    private_bus.stop()
    await asyncio.sleep(0.05)
    await manager.stop()
    private_bus.start()
    after = FakeSystemd()
    after.jobs, after.properties = manager.jobs, manager.properties
    await after.start(private_bus.address)
    return after


async def started(task: asyncio.Task[None], manager: FakeSystemd, member: str) -> None:
    while member not in manager.members():
        assert not task.done()
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)


async def test_the_bus_drops_and_the_job_is_still_there(bus: Bus, private_bus: PrivateBus) -> None:
    manager = FakeSystemd()
    await manager.start(private_bus.address)
    manager.job_script = never
    task = asyncio.create_task(Systemd(bus).restart("a.service", 10))
    await started(task, manager, "RestartUnit")
    after = await drop(manager, private_bus)
    await started(task, after, "Get")
    await asyncio.sleep(0.1)
    after.properties["InvocationID"] = Variant("ay", bytes(16))
    await after.finish(100, "a.service", "done")
    await task
    assert "RestartUnit" not in after.members()
    await after.stop()


@pytest.mark.parametrize(("restarted", "again"), [(True, 0), (False, 1)])
async def test_the_bus_drops_and_the_job_is_gone(
    bus: Bus, private_bus: PrivateBus, restarted: bool, again: int
) -> None:
    manager = FakeSystemd()
    await manager.start(private_bus.address)
    manager.job_script = never
    task = asyncio.create_task(Systemd(bus).restart("a.service", 10))
    await started(task, manager, "RestartUnit")
    manager.jobs.clear()
    manager.properties["Job"] = Variant("(uo)", [0, "/"])
    if restarted:
        manager.properties["InvocationID"] = Variant("ay", bytes(16))
    after = await drop(manager, private_bus)
    await task
    assert after.members().count("RestartUnit") == again
    await after.stop()


async def test_the_bus_stays_away(bus: Bus, private_bus: PrivateBus) -> None:
    manager = FakeSystemd()
    await manager.start(private_bus.address)
    manager.job_script = never
    task = asyncio.create_task(Systemd(bus).reload("a.service", 10))
    await started(task, manager, "ReloadUnit")
    private_bus.stop()
    with pytest.raises(Unreachable):
        await task
    await manager.stop()


async def test_no_systemd_on_the_bus(bus: Bus) -> None:
    with pytest.raises(Unreachable) as caught:
        await Systemd(bus).restart("a.service", 5)
    assert caught.value.reason == "ServiceUnknown"


# -- daemon-reload ----------------------------------------------------------------------------------------------------


async def test_daemon_reload(systemd: Systemd, manager: FakeSystemd) -> None:
    await systemd.daemon_reload(5)
    assert "Reload" in manager.members()


async def test_daemon_reload_whose_answer_is_lost(
    systemd: Systemd, manager: FakeSystemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd_jobs, "_RELOAD_GRACE", 0.1)

    async def loses_it(_message: Any) -> None:
        await manager.say_reloading(True)
        await manager.say_reloading(False)

    manager.on("Reload", loses_it)
    await systemd.daemon_reload(5)


async def test_daemon_reload_of_a_manager_that_dropped_off_the_bus(systemd: Systemd, manager: FakeSystemd) -> None:
    async def drops_off(_message: Any) -> None:
        await manager.say_reloading(True)
        manager._tasks.add(asyncio.ensure_future(later()))
        raise DBusFault("org.freedesktop.DBus.Error.NoReply", "Remote peer disconnected")

    async def later() -> None:
        await asyncio.sleep(0.1)
        await manager.say_reloading(False)

    manager.on("Reload", drops_off)
    await systemd.daemon_reload(5)


async def test_daemon_reload_that_does_not_end(systemd: Systemd, manager: FakeSystemd) -> None:
    async def only_begins(_message: Any) -> None:
        await manager.say_reloading(False)  # Of another client.
        await manager.say_reloading(True)

    manager.on("Reload", only_begins)
    with pytest.raises(Terminal) as caught:
        await systemd.daemon_reload(1)
    assert caught.value.reason == "ActionLate", "it is systemd's answer that this takes long"


async def test_daemon_reload_of_a_manager_that_hangs(systemd: Systemd, manager: FakeSystemd) -> None:
    manager.on("Reload", lambda _message: None)
    with pytest.raises(ServiceUnavailable) as caught:
        await systemd.daemon_reload(0.2)
    assert (caught.value.reason, caught.value.service) == ("BusTimeout", "systemd")


@pytest.mark.finding(
    "services: away for a while, services: results that were lost", "A restart whose result was lost is not done twice."
)
@pytest.mark.parametrize(
    ("since", "active", "kind", "again"),
    [
        ("00", "active", "notify", 0),
        ("00", "inactive", "oneshot", 0),
        ("00", "inactive", "notify", 1),
        ("00", "failed", "notify", 1),
        (bytes(range(16)).hex(), "active", "notify", 1),
    ],
)
async def test_a_restart_whose_result_is_not_known(
    systemd: Systemd, manager: FakeSystemd, since: str, active: str, kind: str, again: int
) -> None:
    manager.properties |= {"ActiveState": Variant("s", active), "Type": Variant("s", kind)}
    await systemd.restart("a.service", 5, since=since)
    assert manager.members().count("RestartUnit") == again


async def test_a_restart_that_is_still_under_way_is_waited_for(systemd: Systemd, manager: FakeSystemd) -> None:
    manager.jobs[7] = "a.service"
    manager.properties["Job"] = Variant("(uo)", [7, f"{PATH}/job/7"])
    task = asyncio.create_task(systemd.restart("a.service", 5, since="00"))
    while "Subscribe" not in manager.members():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert not task.done()
    await manager.finish(7, "a.service", "done")
    await task
    assert "RestartUnit" not in manager.members()


async def test_a_result_that_comes_after_its_job_is_gone(
    systemd: Systemd, manager: FakeSystemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal is on the way when the job is looked up: it is not lost."""
    monkeypatch.setattr(module, "_POLL", 0.05)

    async def ends_silently(job: int, unit: str) -> None:
        manager.jobs.pop(job)

    async def looked_up(message: Any) -> Any:
        task = asyncio.create_task(manager.finish(message.body[0], "a.service", "done"))
        try:
            raise DBusFault("org.freedesktop.systemd1.NoSuchJob")
        finally:
            assert task

    manager.job_script = ends_silently
    manager.on("GetJob", looked_up)
    await systemd.restart("a.service", 5)
    assert manager.members().count("RestartUnit") == 1


async def test_a_start_from_before_the_restart_is_not_the_restart(systemd: Systemd, manager: FakeSystemd) -> None:
    """The agent was killed before it requested the restart of a unit that was starting with its previous files."""
    manager.jobs[7] = "a.service"
    manager.properties["Job"] = Variant("(uo)", [7, f"{PATH}/job/7"])
    task = asyncio.create_task(systemd.restart("a.service", 5, since=bytes(range(16)).hex()))
    while "Subscribe" not in manager.members():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    await manager.finish(7, "a.service", "done")
    await task
    assert manager.members().count("RestartUnit") == 1


@pytest.mark.parametrize(("active", "fails"), [("active", True), ("activating", True), ("inactive", False)])
async def test_the_time_of_the_start_proves_a_restart(
    systemd: Systemd, manager: FakeSystemd, active: str, fails: bool
) -> None:
    manager.properties |= {
        "ActiveState": Variant("s", active),
        "InactiveExitTimestampMonotonic": Variant("t", int(time.monotonic() * 1e6) - 1000),
    }
    with pytest.raises(UnitJobFailed, match="not started again") if fails else nullcontext():
        await systemd.restart("a.service", 5)
    manager.properties["InactiveExitTimestampMonotonic"] = Variant("t", int((time.monotonic() + 60) * 1e6))
    await systemd.restart("a.service", 5)


async def test_relations_of_a_unit(systemd: Systemd, manager: FakeSystemd) -> None:
    manager.units = {
        "a.socket": {"RequiredBy": Variant("as", ["b.service"]), "ConsistsOf": Variant("as", ["c.service"])}
        | {"PropagatesStopTo": Variant("as", ["d.service"]), "ConflictedBy": Variant("as", ["e.service"])}
        | {"Triggers": Variant("as", ["a.service"]), "BindsTo": Variant("as", ["f.service"])},
    }
    found = await systemd.relations("a.socket")
    assert found == Relations(
        restarts=frozenset({"b.service", "c.service"}),
        stops=frozenset({"d.service"}),
        conflicts=frozenset({"e.service"}),
        triggers=frozenset({"a.service"}),
        needs=frozenset({"f.service"}),
        wanted_by=frozenset({"b.service"}),
    )
    assert await systemd.relations("c.service") == await systemd.relations("t@.service") == Relations()


async def test_an_older_systemd_has_fewer_relations(systemd: Systemd, manager: FakeSystemd) -> None:
    get = manager.handlers["Get"]

    def older(message: Any) -> Any:
        if message.body[1] in ("PropagatesStopTo", "UpheldBy"):
            raise DBusFault("org.freedesktop.DBus.Error.UnknownProperty")
        return get(message)

    manager.on("Get", older)
    assert await systemd.relations("a.service") == Relations()


async def test_the_start_jobs_and_what_waits_for_them(systemd: Systemd, manager: FakeSystemd) -> None:
    def job(number: int, unit: str, state: str = "waiting") -> list[Any]:
        return [number, unit, "start", state, f"/j/{number}", f"/u/{number}"]

    manager.start_jobs = [job(1, "slow.service", "running"), job(2, "crio.service"), job(3, OURS, "running")]
    manager.waiting = {
        1: [job(2, "crio.service"), job(4, "network-online.target"), job(5, "multi-user.target")],
        4: [job(6, "kubelet.service"), job(1, "slow.service")],
        5: [job(7, "last.service")],
    }
    assert await systemd.start_jobs() == {"slow.service": ("crio.service", "kubelet.service")}


async def test_daemon_reload_too_often(systemd: Systemd, manager: FakeSystemd) -> None:
    def limited(_message: Any) -> None:
        raise DBusFault("org.freedesktop.DBus.Error.LimitsExceeded", "rate limit")

    manager.on("Reload", limited)
    with pytest.raises(Retryable) as caught:
        await systemd.daemon_reload(5)
    assert caught.value.reason == "LimitsExceeded"


async def test_daemon_reload_over_a_dropped_bus(bus: Bus, private_bus: PrivateBus) -> None:
    manager = FakeSystemd()
    await manager.start(private_bus.address)
    manager.on("Reload", lambda _m: None)
    task = asyncio.create_task(Systemd(bus).daemon_reload(10))
    await started(task, manager, "Reload")
    after = await drop(manager, private_bus)
    await task
    assert "Reload" in after.members()
    await after.stop()


# -- unit files and state ---------------------------------------------------------------------------------------------


async def test_failures_are_forgotten(systemd: Systemd, manager: FakeSystemd) -> None:
    await systemd.reset_failed("a.service")
    assert manager.calls == [("ResetFailedUnit", ["a.service"])]


async def test_state_of_a_service(systemd: Systemd, manager: FakeSystemd) -> None:
    state = await systemd.state("a.service")
    assert (state.load, state.active, state.sub, state.type, state.result) == (
        "loaded",
        "active",
        "running",
        "notify",
        "success",
    )
    assert (state.restarts, state.file) == (3, "enabled")
    assert state.invocation_id == bytes(range(16)).hex()


async def test_state_of_other_units(systemd: Systemd, manager: FakeSystemd) -> None:
    manager.properties["LoadState"] = Variant("s", "not-found")
    state = await systemd.state("none.socket")
    assert (state.load, state.type, state.file) == ("not-found", "", "")
    assert "Type" not in [body[1] for member, body in manager.calls if member == "Get"]


async def test_state_of_templates_and_instances(systemd: Systemd, manager: FakeSystemd) -> None:
    template = await systemd.state("b@.service")
    assert (template.load, template.active, template.file) == ("loaded", "inactive", "static")
    assert (await systemd.state("none@.service")).load == "not-found"
    assert "LoadUnit" not in manager.members()
    await systemd.state("b@x-y.service")
    assert ("LoadUnit", ["b@x-y.service"]) in manager.calls


@pytest.mark.finding(
    "units: what systemd can do with a unit", "What systemd can do with a unit, and its own name, are properties of it."
)
async def test_the_abilities_of_a_unit(systemd: Systemd, manager: FakeSystemd) -> None:
    manager.units["nick.service"] = {"Id": Variant("s", "a.service"), "CanReload": Variant("b", False)}
    assert await systemd.abilities("nick.service") == UnitAbilities("a.service", can_reload=False)
    assert await systemd.abilities("b.service") == UnitAbilities("b.service")


@pytest.mark.finding(
    "units: enabled without a unit", "A template that names no instance is known before it is enabled."
)
@pytest.mark.parametrize(
    ("text", "can"),
    [
        ("[Install]\nWantedBy=multi-user.target\n", False),
        ("[Install]\nWantedBy=multi-user.target\nDefaultInstance=1\n", True),
        ("[Install]\nWantedBy=other@.target\n", True),
        ("[Service]\n", True),
    ],
)
async def test_the_abilities_of_a_template(
    systemd: Systemd, manager: FakeSystemd, tmp_path: Path, text: str, can: bool
) -> None:
    manager.directory = str(tmp_path)
    (tmp_path / "b@.service").write_text(text)
    assert await systemd.abilities("b@.service") == UnitAbilities("b@.service", can_enable=can)
    assert await systemd.abilities("none@.service") == UnitAbilities("none@.service")
    assert "LoadUnit" not in manager.members()


async def test_the_path_of_a_unit_is_systemds_business(systemd: Systemd, manager: FakeSystemd) -> None:
    paths: set[str] = set()
    original = manager.handlers["Get"]

    def remember(message: Any) -> Any:
        paths.add(message.path)
        return original(message)

    manager.on("Get", remember)
    await systemd.state("b@x-y.service")
    assert paths == {f"{PATH}/unit/b_40x_2dy_2eservice"}


async def test_stop(systemd: Systemd, manager: FakeSystemd) -> None:
    await systemd.stop("a.service", 5)
    assert ("StopUnit", ["a.service", "replace"]) in manager.calls
    assert "ResetFailedUnit" not in manager.members()


async def test_stopping_a_template_stops_its_instances(systemd: Systemd, manager: FakeSystemd) -> None:
    manager.loaded = ["b@1.service", "b@2.service", "bb@1.service", "b.service"]
    await systemd.stop("b@.service", 5)
    stopped = [body[0] for member, body in manager.calls if member == "StopUnit"]
    assert stopped == ["b@1.service", "b@2.service"]


async def test_names_of_unit_files(systemd: Systemd, manager: FakeSystemd) -> None:
    assert await systemd.files() == {"a.service", "b@.service"}
