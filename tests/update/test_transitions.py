# SPDX-License-Identifier: Apache-2.0
"""Every answer of the decision code, for every state, record and failure, is an edge of the table.

The records are those of every state, with the product of the data that its leg can have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest

from nodeagent.agent import loop as agent_loop
from nodeagent.errors import AgentError, Refused, Retryable, ServiceUnavailable, Terminal, Unreachable
from nodeagent.host.store.record_codec import record_to_dict
from nodeagent.reasons import Reason, reason_of
from nodeagent.update.course import COURSE, Restart
from nodeagent.update.machine import Executor
from nodeagent.update.next import preflight
from nodeagent.update.ports.events import ConfigRefused, DesiredChanged, HostDegraded
from nodeagent.update.ports.system import ShutdownKind
from nodeagent.update.record import IllegalTransition, OsProgress, Record
from nodeagent.update.run import Run, Update
from nodeagent.update.stages.compare import VerifyFailed
from nodeagent.update.stages.coordination import Operation
from nodeagent.update.stages.failure import failed
from nodeagent.update.states import (
    INTERRUPTED,
    Abort,
    Apply,
    Fallback,
    Leg,
    Phase,
    Revert,
    State,
    Transition,
    Unreleased,
)
from nodeagent.update.steps.step import ActionFailed
from nodeagent.update.wait import NotNow
from tests.update.table import NEXT
from tests.world import FakeFiles, FakePower, FakeUnit, World, cluster_host, os_host
from tests.world.cluster_host import ClusterHost
from tests.world.run import Host, change_work, config

pytestmark = pytest.mark.looptime


class BrokenInvariant(AssertionError):
    """The error of a failed ``assert`` of the product."""


BROKEN = BrokenInvariant("secret")
WORKING = [state for state in NEXT if state[1] not in (Phase.IDLE, Phase.DEGRADED)]
WORKED = [state for state in WORKING if state[1] is not Phase.REBOOTING]
PLAIN = config("new", {"/etc/app/x": "2"})
UNTOLD = ("", "DrainTimedOut")

FAILURES: dict[str, Callable[[], AgentError]] = {
    "retryable": lambda: Retryable("the bus was restarted", reason=Reason.BUS_CONNECTION_LOST),
    "unreachable": lambda: Unreachable("no bus", reason=Reason.BUS_UNREACHABLE),
    "service away": lambda: ServiceUnavailable("systemd does not answer", reason=Reason.NO_REPLY),
    "terminal": lambda: Terminal("no space left", reason=Reason.NO_SPACE),
    "refused": lambda: Refused("no", reason=Reason.DRAIN_TIMED_OUT),
    "lease lost": lambda: Refused("the lease was lost", reason=Reason.LEASE_LOST),
    "slot lost": lambda: Refused("the slot was lost", reason=Reason.SLOT_LOST),
    "canceled": lambda: Refused("uncordoned", reason=Reason.DRAIN_CANCELED),
    "staged lost": lambda: Refused("not staged any more", reason=Reason.STAGED_LOST),
    "action failed": lambda: ActionFailed("restart app.service", reason=Reason.JOB_FAILED),
    "verify failed": lambda: VerifyFailed("x differs"),
    "unit unhealthy": lambda: VerifyFailed("app.service died", reason=Reason.UNIT_UNHEALTHY, curable=True),
    "not now": lambda: NotNow("a window is closed", reason=reason_of("WindowClosed")),
}


async def begun(host: Host, new: Any) -> Update:
    """An update as the loop begins it, with nothing done."""
    host.want(new)
    update = await host.build()._next_update.begin(host.record)
    assert update is not None
    return update


UNITS = {"app.service": FakeUnit(), "web.service": FakeUnit(), "trust.service": FakeUnit(type="oneshot")}


async def at_first(host: Host, first: Any) -> Host:
    host.want(first)
    await host.settle()
    assert host.phase is Phase.IDLE
    return host


async def plain() -> Host:
    return await at_first(Host(World(units=deepcopy(UNITS))), config("first"))


async def hosts() -> list[tuple[Host, Update]]:
    """One for each kind of plan: a restart; a drain and a restart in a cluster; a reboot; another OS."""
    cluster = await at_first(ClusterHost(World(units=deepcopy(UNITS))), cluster_host.OLD)
    return [
        (host, await begun(host, new))
        for host, new in (
            (await plain(), PLAIN),
            (cluster, cluster_host.DRAIN),
            (await plain(), config("reboot", {"/etc/unlisted": "1"})),
            (await os_host.at_old(), os_host.NEW),
        )
    ]


def legs(kind: type[Leg], phase: Phase, boot_id: str) -> Iterator[Leg]:
    """The product of the data that leads to different decisions."""
    booted = [{"first_write_boot_id": boot_id, "boots": boots} for boots in (0, 1)]
    if kind is Abort:
        yield from (Abort(reason, "why") for reason in ("Superseded", INTERRUPTED, "NoSpace"))
    elif kind is Apply:
        late = UNTOLD if phase in (Phase.WRITING, Phase.ACTING) else UNTOLD[:1]
        yield from (Apply(**one, reboot_instead=why) for one, why in product(booted, late))
    elif kind is Fallback:
        yield from (Fallback(**one, because="it failed") for one in booted)
    elif kind is Revert:
        for one, undo, restored, why in product(booted, (False, True), (False, True), UNTOLD):
            yield Revert(**one, reason="JobFailed", undo_actions=undo, restored=restored, fallback=why)
    elif kind is Unreleased:
        yield from (Unreleased(leg) for leg in (Abort("Superseded"), Apply(), Fallback(), Revert()))
    else:
        yield kind()


def records(state: State, base: Record, boot_id: str) -> Iterator[Record]:
    for leg in legs(*state, boot_id):
        if base.os.target is not None and (isinstance(leg, Fallback) or getattr(leg, "reboot_instead", "")):
            continue  # another OS takes a planned reboot
        os = replace(base.os, clean_shutdown_boot_id=boot_id)
        yield replace(base, phase=state[1], leg=leg, boot_id=boot_id, os=os)


def copied(world: World) -> World:
    values = {name: getattr(world, name) for name in World.__dataclass_fields__}
    values |= {name: value.copy() for name, value in values.items() if isinstance(value, dict | list | set)}
    return World(**{**values, "units": deepcopy(world.units)})


def check(before: Record, to: Transition) -> None:
    after = type(before.leg if to.leg is None else to.leg), to.phase
    assert after in NEXT[type(before.leg), before.phase], f"{before.phase} -> {after} ({to.reason}): {before}"


def state_name(state: State) -> str:
    return f"{state[0].__name__} {state[1]}"


@pytest.mark.finding(
    "updates: legal states after any failure", "Every phase, record and failure leads to an edge of the table."
)
@pytest.mark.parametrize("state", WORKING, ids=state_name)
async def test_the_answer_to_every_failure_is_an_edge(state: State) -> None:
    reasons = ["PhaseLate", "JobFailed", "LeaseLost", "SlotLost", "DrainCanceled"]
    for host, update in await hosts():
        executor = host.build().executor
        for record in records(state, update.record, "boot-1"):
            for reason, curable, may, back in product(reasons, *[(False, True)] * 3):
                executor.policy = replace(host.limits, may_reboot=may, revert=back)
                run = executor.attempt(replace(update, record=record))
                check(record, await failed(run, "it failed", reason, curable=curable))


def fails(executor: Executor, state: State, failure: Callable[[], AgentError] | None) -> None:
    """``failure`` None: late. It happens a few times: some faults are waited for."""
    left = [5]

    async def work(_run: Run) -> Transition:
        if failure is None:
            await asyncio.sleep(10 * (COURSE[state].deadline or 0) + 1)
        elif left[0] or not isinstance(failure(), NotNow | ServiceUnavailable):
            left[0] -= 1
            raise failure()
        return Transition(*reversed(next(iter(ways_out(state)))))

    executor.work[state] = work


def ways_out(state: State) -> list[tuple[Leg, Phase]]:
    return [(next(legs(kind, phase, "boot-1")), phase) for kind, phase in NEXT[state]]


@pytest.mark.parametrize("state", WORKED, ids=state_name)
async def test_the_executor_takes_every_failure_to_an_edge(state: State) -> None:
    """The error is raised as the phases do, and the record is saved, also with a newer desired config."""
    failures = [*FAILURES.values(), *([None] if COURSE[state].deadline else [])]
    for host, update in (await hosts())[:2]:
        for record, failure, newer in product(records(state, update.record, "boot-1"), failures, (False, True)):
            executor = host.build().executor
            if newer:
                host.wanted = ""
                executor.wake.set()
            one = replace(update, record=record)
            fails(executor, state, failure)
            check(record, to := await executor._one(one))
            await executor.enter(one, to)
            assert one.record.reason != "IllegalTransition"
            host.wanted = update.record.to_digest


@pytest.mark.parametrize("failure", [name for name in FAILURES if name != "not now"])
async def test_a_reboot_that_fails_leads_to_an_edge(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [0]

    async def reboot(_self: FakePower, _kind: ShutdownKind, _why: str, **_: object) -> None:
        if left[0]:
            left[0] -= 1
            raise FAILURES[failure]()

    monkeypatch.setattr(FakePower, "shut_down", reboot)
    for host, update in await hosts():
        if host.world.deployments:
            host.world.deployments = [d for d in host.world.deployments if d.booted]
        base = replace(update.record, os=OsProgress())
        for state in (state for state in WORKING if state[1] is Phase.REBOOTING):
            for record in records(state, base, "boot-1"):
                left[0] = 3
                executor = host.build().executor
                host.world.holder = None
                await host.ports().coordination.acquire(Operation(record.update_id, "nodeagent", "why"))
                if (to := await executor._one(replace(update, record=record))) is not None:
                    check(record, to)


@pytest.mark.parametrize("state", [state for state in WORKED if state[1] is not Phase.DRAINING], ids=state_name)
async def test_every_phase_leads_to_an_edge(state: State) -> None:
    """The real work of each, with every record, before and after the boot into another OS."""
    for host, update in await hosts():
        if isinstance(host, ClusterHost):
            continue  # it watches that nothing is done out of order, which is what happens here
        world = host.world
        for record in records(state, update.record, "boot-1"):
            host.world = copied(world)
            await host.ports().coordination.acquire(Operation(record.update_id, "nodeagent", "why"))
            executor = host.build().executor
            one = replace(update, record=record)
            check(record, to := await executor._one(one))
            await executor.enter(one, to)
            assert one.record.reason != "IllegalTransition"


@pytest.mark.parametrize("state", list(NEXT), ids=state_name)
async def test_every_start_of_the_daemon_leads_to_an_edge(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    for host, update in (await hosts())[1::2]:

        async def rest(_update: Update) -> None: ...

        for record, boot_id in product(records(state, update.record, "boot-1"), ("boot-1", "boot-0")):
            host.world.record = record_to_dict(replace(record, boot_id=boot_id))
            loop = host.build()
            monkeypatch.setattr(loop, "_run", rest)
            await loop.resume()
            assert host.record.reason != "IllegalTransition", record
            after = type(host.record.leg), host.phase
            assert after == state or after in NEXT[state]


async def bug(phase: Phase, to: Phase | Exception, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host whose agent would go from ``phase`` to where no edge leads, or raise, at each start."""
    host = await plain()
    build = host.build

    def broken() -> Any:
        loop = build()

        async def work(_run: Run) -> Transition:
            if isinstance(to, Exception):
                raise to
            return Transition(to)

        change_work(loop, lambda at, real: work if at is phase else real)
        return loop

    monkeypatch.setattr(host, "build", broken)
    host.want(PLAIN)
    await host.settle()
    return host


def happened(host: Host) -> int:
    """Each start reports which config is desired; the rest is something that was done."""
    return len([event for event in host.world.events if not isinstance(event, DesiredChanged)])


@pytest.mark.finding(
    "updates: legal states after any failure",
    "A transition that is not in the table ends in `Degraded`, also after a restart, never in a crash loop.",
)
@pytest.mark.parametrize(
    ("phase", "to"),
    [
        (Phase.LEASING, Phase.VERIFYING),
        (Phase.WRITING, Phase.REBOOTING),
        (Phase.ACTING, Phase.RELEASING),
        (Phase.VERIFYING, Phase.IDLE),
    ],
)
@pytest.mark.parametrize("newer", [True, False], ids=["a newer config", "a request"])
async def test_a_bug_ends_in_degraded_and_never_in_a_loop(
    phase: Phase, to: Phase, newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await bug(phase, to, monkeypatch)
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "IllegalTransition")
    assert f"{phase} -> {to}" in host.record.message
    assert host.world.history[-1].reason == "IllegalTransition"
    assert (HostDegraded, "IllegalTransition") in [(type(e), getattr(e, "reason", "")) for e in host.world.events]
    assert (host.world.holder is None) == (phase is Phase.LEASING), "what is held stays held"
    before = happened(host), len(host.world.history)
    await host.settle()
    await host.settle()
    assert (happened(host), len(host.world.history)) == before, "a restart tries nothing"
    monkeypatch.undo()
    if newer:
        host.want(config("newest", {"/etc/app/x": "3"}))
        await host.settle()
    else:
        await host.ask()
    assert (host.phase, host.world.holder) == (Phase.IDLE, None)
    assert host.world.history[-1].to_name == ("newest" if newer else "new")


@pytest.mark.finding(
    "updates: legal states after any failure",
    "An unexpected exception in a phase ends in `Degraded`, never in a crash loop that holds the lease.",
)
@pytest.mark.parametrize("phase", [Phase.LEASING, Phase.WRITING, Phase.ACTING, Phase.VERIFYING])
@pytest.mark.parametrize(
    "error", [KeyError("/etc/x"), MemoryError(), TimeoutError(), BROKEN], ids=lambda one: type(one).__name__
)
async def test_an_unexpected_exception_ends_in_degraded_too(
    phase: Phase, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await bug(phase, error, monkeypatch)
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "InternalError")
    assert f"{type(error).__name__} in {phase}" in host.record.message
    before = happened(host)
    await host.settle()
    assert happened(host) == before, "a restart tries nothing"
    monkeypatch.undo()
    await host.ask()
    assert (host.phase, host.world.holder) == (Phase.IDLE, None)


@pytest.mark.finding(
    "updates: legal states after any failure",
    "An unexpected exception while an update is prepared refuses it, and the daemon goes on.",
)
async def test_an_unexpected_exception_before_an_update_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await plain()
    host.want(PLAIN)

    def fail(*_: object, **__: object) -> None:
        raise RecursionError("secret")

    monkeypatch.setattr(preflight, "make_plan", fail)
    for _ in range(2):
        loop = host.build()
        await loop.resume()
        assert await loop.turn() is not None, "it looks again: some memory may be free by then"
        assert (host.phase, host.record.reason) == (Phase.DEGRADED, "InternalError")
        assert "RecursionError" in host.record.message
        assert "secret" not in host.record.message
    monkeypatch.undo()
    await host.settle()
    assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, "new")


@pytest.mark.parametrize("error", [KeyError("secret"), BROKEN], ids=lambda one: type(one).__name__)
async def test_a_bug_outside_of_a_phase_does_not_end_the_daemon(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop retries with growing pauses and reports the host as degraded. The update continues when it can."""
    host = await plain()
    host.want(PLAIN)
    enter, times, broken = Executor.enter, list[float](), [True]

    async def fail(self: Executor, update: Update, to: Transition) -> None:
        if broken[0] and to.phase is Phase.VERIFYING:
            times.append(asyncio.get_running_loop().time())
            raise error
        await enter(self, update, to)

    monkeypatch.setattr(Executor, "enter", fail)
    task = asyncio.create_task(host.build().run())
    await asyncio.sleep(600)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[0] < 10
    assert 30 < pauses[-1] < 100
    reported = [event for event in host.world.events if isinstance(event, ConfigRefused)]
    assert {(event.about.phase, event.reason) for event in reported} == {(Phase.DEGRADED, "InternalError")}
    assert "secret" not in "".join(event.message for event in reported)
    broken[0] = False
    await asyncio.sleep(200)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, "new")


async def test_a_bug_after_a_boot_ends_in_degraded(monkeypatch: pytest.MonkeyPatch) -> None:
    host, update = (await hosts())[2]
    host.world.record = record_to_dict(replace(update.record, phase=Phase.VERIFYING, leg=Apply(), boot_id="boot-0"))
    loop = host.build()
    monkeypatch.setattr(agent_loop, "AFTER_BOOT", {Restart.VERIFY: Phase.LEASING})
    update = await agent_loop.resumed_update(loop.ports, host._load, loop.desired, loop.executor)
    assert update is not None
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "IllegalTransition")
    assert (await loop._run(update)).name == "DEGRADED"


async def test_a_bug_of_an_update_that_is_degraded_already_is_raised() -> None:
    host, update = (await hosts())[0]
    loop = host.build()
    await loop.executor.enter(update, Transition(Phase.VERIFYING))
    assert host.record.reason == "IllegalTransition"
    entries = len(host.world.history)
    with pytest.raises(IllegalTransition):
        await loop.executor.enter(update, Transition(Phase.VERIFYING))
    assert (host.phase, len(host.world.history)) == (Phase.DEGRADED, entries)


# Writing


FEW = config("few", {f"/etc/app/{number}": "2" for number in range(30)})
SLOW = COURSE[Apply, Phase.WRITING].deadline or 0.0


async def writing(monkeypatch: pytest.MonkeyPatch, seconds: float, *, from_file: int = 0) -> Host:
    """Every file costs ``seconds``, from that one on."""
    host = await plain()
    install, count = FakeFiles.install, [0]

    async def slow(self: FakeFiles, path: str, node: Any) -> Any:
        count[0] += 1
        if count[0] > from_file:
            await asyncio.sleep(seconds)
        return await install(self, path, node)

    monkeypatch.setattr(FakeFiles, "install", slow)
    host.want(FEW)
    await host.settle()
    return host


@pytest.mark.finding(
    "updates: legal states after any failure",
    "Writing is late when it makes no progress, not when there is much to write.",
)
async def test_writing_may_take_long_as_long_as_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    began = asyncio.get_running_loop().time()
    host = await writing(monkeypatch, 0.4 * SLOW)
    assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, "few")
    assert asyncio.get_running_loop().time() - began > 10 * SLOW


@pytest.mark.finding(
    "updates: legal states after any failure", "A disk that hangs while the agent writes leads to a revert."
)
async def test_a_disk_that_hangs_is_late_and_everything_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to ask for a reboot, which no edge leads to from here: an endless loop of restarts, the lease held."""
    host = await writing(monkeypatch, 100 * SLOW, from_file=20)
    assert (host.phase, host.record.reason, host.world.history[-1].reason) == (Phase.DEGRADED, "Reverted", "PhaseLate")
    assert "made no progress" in host.world.history[-1].message
    assert (host.world.holder, host.actions()) == (None, [])
    assert not any(path.startswith("/etc/app/") for path in host.world.disk)


async def test_a_disk_that_hangs_on_the_way_back_too_is_degraded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: object, **__: object) -> None:
        await asyncio.sleep(100 * 3600)

    monkeypatch.setattr(FakeFiles, "remove", hang)
    host = await writing(monkeypatch, 100 * SLOW, from_file=20)
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "PhaseLate")
    assert host.world.holder is not None
    await host.settle()
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "PhaseLate")


async def test_going_back_may_take_long_too(monkeypatch: pytest.MonkeyPatch) -> None:
    remove = FakeFiles.remove

    async def slow(self: FakeFiles, path: str, made: Any, **options: Any) -> None:
        await asyncio.sleep(0.4 * (COURSE[Revert, Phase.REVERTING].deadline or 0))
        await remove(self, path, made, **options)

    monkeypatch.setattr(FakeFiles, "remove", slow)
    host = await writing(monkeypatch, 100 * SLOW, from_file=20)
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "Reverted")
    by_progress = {phase for (_, phase), row in COURSE.items() if row.by_progress}
    assert by_progress == {Phase.WRITING, Phase.REVERTING, Phase.VERIFYING}
