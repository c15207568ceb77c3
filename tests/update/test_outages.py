# SPDX-License-Identifier: Apache-2.0
"""A service of the host that does not answer: the update waits for it, and ends as it would have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from nodeagent.agent.report.report import Report
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.errors import AgentError
from nodeagent.host.dbus.errors import BUS_SERVICE, BusRetryable, BusUnreachable, connection_lost
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.update import machine
from nodeagent.update.course import COURSE
from nodeagent.update.decide import MAX_REBOOT_TRIES
from nodeagent.update.ports.events import ConfigRefused, Event, Warned
from nodeagent.update.states import Apply, Phase
from tests.update.test_kills import BUSY, REBOOTING, at_old
from tests.world import FakeUnit, FakeUnits, Killed, Outage, World, kill_points, os_host
from tests.world.os_host import B_DIGEST, bad_on, on
from tests.world.run import Host, config, until

pytestmark = pytest.mark.looptime


CALL_TIMEOUT = 25


async def lost(_service: str) -> AgentError:
    return connection_lost("the other side closed it")


async def unreachable(_service: str) -> AgentError:
    await asyncio.sleep(10)
    return BusUnreachable("cannot reach the bus", reason=Reason.BUS_UNREACHABLE, service=BUS_SERVICE)


async def hung(service: str) -> AgentError:
    await asyncio.sleep(CALL_TIMEOUT)
    return _no_answer(service)


def _no_answer(service: str) -> AgentError:
    return BusRetryable(f"no answer within {CALL_TIMEOUT} s", reason=Reason.BUS_TIMEOUT, service=service)


async def died(service: str) -> AgentError:
    return BusRetryable("it was restarted", reason=Reason.NO_REPLY, service=service)


FAULTS = {"connection lost": lost, "cannot connect": unreachable, "no answer in time": hung, "NoReply": died}


class EachOnce(Outage):
    """The first time that a call is made in a phase of an update, it gets no answer."""

    def __init__(self, world: World, fault: Callable[[str], Awaitable[AgentError]], *, took_effect: bool) -> None:
        super().__init__(fault, took_effect=took_effect)
        self._world = world
        self._failed: set[tuple[object, str]] = set()

    def hits(self, service: str, call: str) -> bool:
        point = (self._world.record["phase"], call)
        new = point not in self._failed
        self._failed.add(point)
        return new


class For(Outage):
    """No service answers for ``seconds`` from the n-th call on, or only ``service`` does not."""

    def __init__(
        self, fault: Callable[[str], Awaitable[AgentError]], at: int, seconds: float = 60.0, service: str = ""
    ) -> None:
        super().__init__(fault)
        self._at = at
        self._seconds = seconds
        self._service = service
        self._until: float | None = None

    def hits(self, service: str, call: str) -> bool:
        if self._service not in ("", service):
            return False
        now = asyncio.get_running_loop().time()
        if self._until is None and len(self.calls) >= self._at:
            self._until = now + self._seconds
        return self._until is not None and now < self._until


class Unanswered(Outage):
    """Calls to these services get no answer for as long as ``away`` is set; those that wait are answered then."""

    away = True

    def __init__(self, fault: Callable[[str], Awaitable[AgentError]], *services: str) -> None:
        super().__init__(fault)
        self._services = services

    def hits(self, service: str, call: str) -> bool:
        return self.away and service in self._services

    async def around(self, service: str, call: str, work: Callable[[], Awaitable[Any]], **options: Any) -> Any:
        if self.fault is not hung:
            return await super().around(service, call, work)
        for _ in range(CALL_TIMEOUT):
            if not self.hits(service, call):
                return await work()
            await asyncio.sleep(1)
        raise _no_answer(service)


class During(Unanswered):
    """The same in one phase."""

    def __init__(
        self, world: World, phase: Phase, fault: Callable[[str], Awaitable[AgentError]], *services: str
    ) -> None:
        super().__init__(fault, *services)
        self._world = world
        self._phase = phase

    def hits(self, service: str, call: str) -> bool:
        return self._world.record["phase"] == self._phase and super().hits(service, call)


class Dead(Unanswered):
    """Does not answer, but systemd still takes the host down."""

    async def around(self, service: str, call: str, work: Callable[[], Awaitable[Any]], **options: Any) -> Any:
        return await work() if options.get("direct") else await super().around(service, call, work, **options)


@dataclass(frozen=True)
class Story:
    """An update, and a host on which it ends in its own way."""

    old: Callable[[], Awaitable[Host]]
    new: MachineConfig
    spoil: Callable[[World], None] = lambda world: None
    fails: tuple[str, ...] = ()  # actions, which are tried once more after an outage


def app_is_bad_with_two(world: World) -> None:
    class Picky(FakeUnit):
        @property
        def bad_until_boot(self) -> int:
            node = world.disk.get("/etc/app/x")
            return 99 if node is not None and b"2" in getattr(node, "content", b"") else 0

        @bad_until_boot.setter
        def bad_until_boot(self, value: int) -> None: ...

    world.units["app.service"] = Picky()


OS_AND_FILES = on("b", "busy", {"/etc/app/x": "2", "/etc/app/y": "2"}, kernel_arguments=("nosmt",))
STORIES = {
    "units": Story(at_old, BUSY),
    "a reboot": Story(at_old, REBOOTING),
    "fallback and revert": Story(
        at_old, config("bad", {"/etc/app/x": "2", "/etc/web/x": "1"}), app_is_bad_with_two, ("restart app.service",)
    ),
    "OS": Story(os_host.at_old, OS_AND_FILES),
    "OS, taken back": Story(os_host.at_old, OS_AND_FILES, lambda world: bad_on(world, B_DIGEST)),
}


async def prepared(story: Story) -> Host:
    host = await story.old()
    # With less patience than usual: each second that a loop of the tests skips costs some cycles of it.
    host.limits = replace(host.limits, verify_timeout=4, settle=2)
    story.spoil(host.world)
    host.want(story.new)
    return host


def unrepeated(actions: Iterable[str], story: Story) -> list[str]:
    """Drop permitted repetitions: a reload whose answer was lost, and an action that failed."""
    out: list[str] = []
    for action in actions:
        if not (
            out and out[-1] == action and action.partition(":")[2].startswith(("reload ", "daemon-", *story.fails))
        ):
            out.append(action)
    return out


def outcome(host: Host, story: Story) -> dict[str, object]:
    world, record = host.world, host.record
    return {
        "phase": (record.phase, record.reason),
        "disk": world.disk,
        "units": {name: (unit.active, unit.file, unit.read) for name, unit in world.units.items()},
        "passwords": world.passwords,
        "current": world.current,
        "history": [(e.to_name, e.outcome, e.reboots, e.reason, e.fallback) for e in world.history],
        "rejected": record.lasting.failed_digest,
        "lease": world.holder,
        "actions": unrepeated(world.done, story),
        "deployments": world.deployments,
    }


async def undisturbed(story: Story) -> dict[str, object]:
    host = await prepared(story)
    await host.settle()
    return outcome(host, story)


@pytest.mark.finding(
    "services: away for a while, services: results that were lost",
    "Every call to a service of the host that gets no answer, in every phase, leads to the same end as without the "
    "fault.",
)
@pytest.mark.parametrize("took_effect", [False, True], ids=["before", "after it took effect"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_each_call_fails_once_in_each_phase(
    story: Story, fault: Callable[[str], Awaitable[AgentError]], took_effect: bool
) -> None:
    expected = await undisturbed(story)
    host = await prepared(story)
    host.world.outage = EachOnce(host.world, fault, took_effect=took_effect)
    await host.settle()
    assert len(host.world.outage.calls) > 10
    assert outcome(host, story) == expected


@pytest.mark.finding(
    "services: away for a while, services: results that were lost",
    "Every call to a service of the host that gets no answer, in every phase, leads to the same end as without the "
    "fault.",
)
@pytest.mark.parametrize(
    ("story", "fault"),
    [(story, unreachable) for story in STORIES.values()] + [(STORIES["units"], fault) for fault in (lost, hung, died)],
    ids=[*STORIES, "connection lost", "no answer in time", "NoReply"],
)
async def test_every_service_is_away_for_a_minute_from_each_call_on(
    story: Story, fault: Callable[[str], Awaitable[AgentError]]
) -> None:
    expected = await undisturbed(story)
    whole = await prepared(story)
    whole.world.outage = For(fault, 10_000)
    await whole.settle()
    for at in kill_points(len(whole.world.outage.calls)):
        host = await prepared(story)
        host.world.outage = For(fault, at)
        await host.settle()
        assert outcome(host, story) == expected, f"from call {at} on: {host.world.outage.calls[at - 1]}"


def followed(host: Host) -> Report:
    """The status, as it follows from what the executor reports from now on."""
    report = Report(Status())
    emit = host.world.events.append

    class Events(list[Event]):
        def append(self, event: Event) -> None:
            emit(event)
            report.emit(event)

    host.world.events = Events()
    return report


@pytest.mark.finding(
    "services: away for a while, services: results that were lost",
    "The status names the service and since when it is away, until it answers.",
)
async def test_the_status_names_the_service_and_since_when_until_it_answers() -> None:
    host = await at_old()
    report = followed(host)
    host.world.outage = outage = Unanswered(hung, "systemd")
    outage.away = False
    host.want(BUSY)
    host.limits = replace(host.limits, settle=300, verify_timeout=600)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.VERIFYING)
    outage.away = True
    await asyncio.sleep(60)
    assert (report.status.phase, report.status.reason) == (Phase.VERIFYING, "BusTimeout")
    assert "waiting for systemd, which has not answered since 2026-01-01T" in report.status.message
    outage.away = False
    await asyncio.sleep(150)
    assert (report.status.phase, report.status.reason, report.status.message) == (Phase.VERIFYING, "", "")
    await task
    assert host.phase is Phase.IDLE
    assert host.world.history[-1].outcome == "done"


@pytest.mark.finding(
    "attack: outages without end", "An outage that is waited for postpones the deadline of the watch beside it."
)
@pytest.mark.parametrize(("settle", "timeout"), [(19.5, 20), (300, 301)])
async def test_an_outage_leaves_the_watch_the_whole_settle_time(settle: float, timeout: float) -> None:
    host = await at_old()
    host.world.outage = outage = Unanswered(hung, "systemd")
    outage.away = False
    host.want(BUSY)
    host.limits = replace(host.limits, settle=settle, verify_timeout=timeout)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.VERIFYING)
    await asyncio.sleep(10)
    outage.away = True
    await asyncio.sleep(50)
    outage.away = False
    await task
    assert (host.phase, host.world.history[-1].outcome, host.world.history[-1].reboots) == (Phase.IDLE, "done", 0)


async def test_the_status_names_an_rpm_ostreed_that_does_not_answer_after_the_boot() -> None:
    host = await os_host.at_old()
    report = followed(host)
    host.world.outage = outage = During(host.world, Phase.VERIFYING, hung, "rpm-ostreed")
    host.want(OS_AND_FILES)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.VERIFYING)
    await asyncio.sleep(90)
    assert (report.status.phase, report.status.reason) == (Phase.VERIFYING, "BusTimeout")
    assert "waiting for rpm-ostreed" in report.status.message
    await asyncio.sleep(1000)
    outage.away = False
    await task
    assert (host.phase, host.world.history[-1].outcome) == (Phase.IDLE, "done")


async def test_a_service_that_is_restarted_is_a_warning_only() -> None:
    host = await at_old()
    host.world.outage = For(died, 3, 1)
    host.want(REBOOTING)
    await host.settle()
    kinds = {type(event) for event in host.world.events if getattr(event, "reason", "") == "NoReply"}
    assert kinds == {Warned}


async def test_a_config_waits_for_a_host_that_cannot_be_examined() -> None:
    host = await os_host.at_old()
    report = followed(host)
    host.world.outage = outage = Unanswered(unreachable, "systemd", "rpm-ostreed")
    host.want(OS_AND_FILES)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(200)
    assert (report.status.phase, report.status.reason) == (Phase.IDLE, "BusUnreachable")
    outage.away = False
    await task
    assert not [event for event in host.world.events if isinstance(event, ConfigRefused)]
    assert (host.phase, report.status.reason, host.world.current) == (Phase.IDLE, "", host.wanted)


@pytest.mark.finding(
    "services: away for a while",
    "A host whose logind is away is not a host that cannot reboot; after half an hour it reboots without logind.",
)
async def test_logind_is_dead_for_good_so_systemd_reboots() -> None:
    host = await at_old()
    report = followed(host)
    host.world.outage = Dead(hung, "systemd-logind")
    host.want(REBOOTING)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.REBOOTING)
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(host.limits.service_wait / 2)
    assert (report.status.phase, report.status.reason) == (Phase.REBOOTING, "BusTimeout")
    await asyncio.wait_for(task, host.limits.service_wait)
    assert asyncio.get_running_loop().time() - began >= host.limits.service_wait
    assert host.actions() == ["reboot.target", "reboot"]
    assert (host.phase, host.world.history[-1].outcome, host.record.lasting.failed_digest) == (Phase.IDLE, "done", "")


@pytest.mark.finding(
    "services: results that were lost",
    "A service that stays away degrades the host and not the config; the update goes on with it.",
)
# The writing needs no service of the host.
@pytest.mark.parametrize(
    ("new", "phase"),
    [(BUSY, Phase.ACTING), (BUSY, Phase.VERIFYING), (REBOOTING, Phase.REBOOTING)],
)
async def test_a_service_that_stays_away_degrades_the_host_and_not_the_config(new: MachineConfig, phase: Phase) -> None:
    host = await at_old()
    report = followed(host)
    host.world.outage = outage = During(host.world, phase, unreachable, "systemd", "systemd-logind")
    host.want(new)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(host.limits.service_wait + 120)
    assert (report.status.phase, report.status.reason) == (Phase.DEGRADED, "BusUnreachable")
    assert BUS_SERVICE in report.status.message
    assert host.phase is phase
    assert host.record.lasting.failed_digest == ""
    assert host.world.holder is not None
    task.cancel()  # the agent is stopped, and started when the bus is back
    await asyncio.gather(task, return_exceptions=True)
    outage.away = False
    await host.settle()
    assert (host.phase, host.world.history[-1].outcome, host.world.holder) == (Phase.IDLE, "done", None)


@pytest.mark.finding(
    "services: away for a while",
    "A host whose logind is away is not a host that cannot reboot; after half an hour it reboots without logind.",
)
async def test_a_host_whose_logind_is_away_is_no_host_that_cannot_reboot() -> None:
    host = await at_old()
    host.world.outage = outage = Unanswered(hung, "systemd-logind")
    host.want(REBOOTING)
    for _ in range(2 * MAX_REBOOT_TRIES):
        life = asyncio.create_task(host._live())
        await asyncio.sleep(300)
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
    assert host.phase is Phase.REBOOTING
    outage.away = False
    await host.settle()
    assert (host.phase, host.actions()) == (Phase.IDLE, ["reboot"])


@pytest.mark.finding("services: results that were lost", "A phase is not late because systemd did not answer.")
async def test_a_phase_is_not_late_while_systemd_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(COURSE[Apply, Phase.VERIFYING], deadline=40.0)
    monkeypatch.setattr(machine, "COURSE", {**COURSE, (Apply, Phase.VERIFYING): short})
    host = await at_old()
    host.limits = replace(host.limits, verify_timeout=10)
    host.world.outage = outage = Unanswered(hung, "systemd")
    outage.away = False
    host.want(BUSY)
    task = asyncio.create_task(host.settle())
    await until(host, Phase.VERIFYING)
    outage.away = True
    await asyncio.sleep(100)
    outage.away = False
    await task
    assert (host.phase, host.world.history[-1].outcome) == (Phase.IDLE, "done")


@pytest.mark.finding(
    "services: away for a while, services: results that were lost", "A restart whose result was lost is not done twice."
)
async def test_an_agent_that_is_killed_in_a_restart_does_not_restart_the_unit_again() -> None:
    """The answer was lost together with the agent: the invocation ID says that the restart took place."""
    host = await at_old()
    host.world.outage = Unanswered(lost, "systemd")
    host.world.outage.away = False
    host.want(config("new", {"/etc/app/x": "2", "/etc/web/x": "1", "/etc/quiet/gone": "1"}))
    restart, world = FakeUnits.restart, host.world

    async def killed(self: FakeUnits, unit: str, deadline: float, *, since: str | None = None) -> None:
        await restart(self, unit, deadline, since=since)
        if since is None:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeUnits, "restart", killed)
        await host.settle()
    assert host.actions() == ["restart app.service"]
    assert (host.phase, world.history[-1].outcome) == (Phase.IDLE, "done")


async def dies_with_the_bus(host: Host, comes_back: bool) -> None:
    """app.service is on the bus, so it dies when that is restarted, and systemd starts it again."""
    await until(host, Phase.VERIFYING)
    unit = host.world.units["app.service"]
    host.world.bus_losses += 1
    unit.active = "failed"
    await asyncio.sleep(10)
    if comes_back:
        unit.active, unit.restarts, unit.invocation = "active", unit.restarts + 1, unit.invocation + 1


@pytest.mark.finding(
    "services: results that were lost",
    "A unit that goes down with the bus, and an action that fails while the bus is away, get a second chance before "
    "that is a verdict.",
)
@pytest.mark.parametrize(("comes_back", "end"), [(True, "done"), (False, "done-after-fallback")])
async def test_a_unit_that_dies_with_the_bus_has_time_to_come_back(comes_back: bool, end: str) -> None:
    host = await at_old()
    host.want(BUSY)
    task = asyncio.create_task(host.settle())
    await dies_with_the_bus(host, comes_back)
    await task
    assert (host.phase, host.world.history[-1].outcome) == (Phase.IDLE, end)


@pytest.mark.finding(
    "services: results that were lost",
    "A unit that goes down with the bus, and an action that fails while the bus is away, get a second chance before "
    "that is a verdict.",
)
@pytest.mark.parametrize(("fails", "losses", "reboots"), [(1, 1, 0), (1, 0, 1), (2, 1, 1)])
async def test_an_action_that_fails_while_the_bus_is_away_is_tried_once_more(
    fails: int, losses: int, reboots: int
) -> None:
    host = await at_old()
    restart, world = FakeUnits.restart, host.world
    world.units["app.service"].fail_restarts = fails

    async def lose(self: FakeUnits, unit: str, deadline: float, **options: Any) -> Any:
        if unit == "app.service":
            world.bus_losses += losses
        return await restart(self, unit, deadline, **options)

    host.want(BUSY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeUnits, "restart", lose)
        await host.settle()
    assert (host.phase, host.actions().count("reboot")) == (Phase.IDLE, reboots)
