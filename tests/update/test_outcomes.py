# SPDX-License-Identifier: Apache-2.0
"""Every way in which an update, or a request for one, can end: one report of it, the right exit status, and an entry in
the history where something began that is not tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import UnitEntry
from nodeagent.errors import InvalidInput, Retryable, Terminal
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.report.status_json import status_to_dict
from nodeagent.update import machine
from nodeagent.update.history.outcome import IN_HISTORY
from nodeagent.update.machine import WORK
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import (
    DesiredChanged,
    Event,
    HostDegraded,
    PhaseEntered,
    UpdateFinished,
    UpdateResumed,
    UpdateStarted,
    UpdateWaiting,
)
from nodeagent.update.ports.store import ApplyRequest, HistoryEntry
from nodeagent.update.ports.system import Inhibitor
from nodeagent.update.record import half_way as half_way_record
from nodeagent.update.record import interrupted
from nodeagent.update.run import Run
from nodeagent.update.states import Abort, Phase, Revert, Transition, Unreleased
from tests.update.test_update import A, B, started
from tests.world import FakeUnit, FakeUnits, Fault, Killed, full_disk
from tests.world.os_host import NEW, at_old
from tests.world.run import Host, config

pytestmark = pytest.mark.looptime

C = config("c", {"/etc/app/x": "3", "/etc/quiet/q": "1"})
JANE = Holder("jane", "maintenance", "disk swap", "now")


def ends(host: Host) -> list[tuple[HistoryEntry, int]]:
    found = [event for event in host.world.events if isinstance(event, UpdateFinished)]
    return [(event.entry, event.exit_code) for event in found]


def outcomes(host: Host) -> list[tuple[str, str, int]]:
    return [(entry.to_name, str(entry.outcome), code) for entry, code in ends(host)]


def status(host: Host) -> Status:
    """Return the status of the report."""
    folded = Status()
    for event in host.world.events:
        folded = fold(folded, event)
    return folded


def begun(events: list[Event]) -> list[str]:
    return list(dict.fromkeys(event.about.update_id for event in events if isinstance(event, UpdateStarted)))


async def leasing(host: Host) -> asyncio.Task[None]:
    """An update to B waits for a lease that jane holds."""
    host.world.holder = JANE
    host.want(B)
    task = asyncio.create_task(host.settle())
    while host.phase is not Phase.LEASING:
        await asyncio.sleep(0.2)
    await asyncio.sleep(5)
    return task


async def done() -> Host:
    host = await started()
    host.want(B)
    return host


async def after_fallback() -> Host:
    host = await started(app=FakeUnit(bad_until_boot=2))
    host.want(B)
    return host


async def reverted() -> Host:
    host = await started()
    host.want(config("b", {"/etc/app/x": "2", "/etc/quiet/q": "1", "/etc/ssh/full": "1"}))
    host.world.faults.append(full_disk())
    return host


async def degraded() -> Host:
    host = await started()
    host.world.faults.append(Fault("ignored reboot", times=None))
    host.want(config("b", {"/etc/app/x": "1", "/etc/quiet/q": "1", "/etc/unlisted": "1"}))
    return host


async def refused() -> Host:
    host = await started()
    host.world.disk["/etc/quiet/q"] = RegularFile(b"by hand")
    host.want(B)
    return host


async def postponed() -> Host:
    host = await at_old()
    host.world.faults.append(Fault("stage", Retryable("the registry does not answer", reason="PullFailed"), times=5))
    host.want(NEW)
    return host


WAYS: list[tuple[Callable[[], Awaitable[Host]], str, int]] = [
    (done, "done", 0),
    (after_fallback, "done-after-fallback", 0),
    (reverted, "reverted", 1),
    (degraded, "degraded", 1),
    (refused, "refused", 4),
    (postponed, "postponed", 1),
]


@pytest.mark.finding(
    "updates: each end has an outcome",
    "Each way to end gives one `UpdateFinished`, its exit status, and an entry in the history where something began.",
)
@pytest.mark.finding(
    "users: first trial of updates", "A reverted update says what was reverted and what the host runs."
)
@pytest.mark.parametrize(("prepare", "outcome", "code"), WAYS, ids=[way[0].__name__ for way in WAYS])
async def test_each_way_to_end_is_reported_once(
    prepare: Callable[[], Awaitable[Host]], outcome: str, code: int
) -> None:
    host = await prepare()
    known = len(host.world.history)
    host.world.events.clear()
    await host.settle()
    ((entry, reported),) = ends(host)
    assert (str(entry.outcome), reported) == (outcome, code)
    assert entry.to_digest == host.wanted
    # A refusal before the update begins has no id.
    assert host.world.history[known:] == ([entry] if outcome in IN_HISTORY and entry.update_id else [])
    assert begun(host.world.events) == ([entry.update_id] if prepare is not refused else [])
    await host.settle()
    if outcome == "reverted":
        # No claim that it is well, which a line about drift would contradict.
        assert host.record.message.startswith("the host runs a again; b was taken back because of: ")
    if outcome in IN_HISTORY and prepare is not refused:
        assert len(ends(host)) == 1, "and not again by the next start"


async def test_superseded() -> None:
    host = await started()
    task = await leasing(host)
    host.world.events.clear()
    host.want(C)
    host.world.holder = None
    await task
    assert outcomes(host) == [("b", "superseded", 4), ("c", "done", 0)]
    assert [(e.to_name, e.outcome, e.successor) for e in host.world.history[1:]] == [
        ("b", "superseded", "c"),
        ("c", "done", ""),
    ]
    assert host.world.history[1].message == "c is desired instead; nothing was changed"
    assert (host.phase, host.record.reason) == (Phase.IDLE, "")


@pytest.mark.finding(
    "updates: each end has an outcome",
    "An update that another config replaces before anything was written ends `superseded` (4) with the name of that "
    "config, also over a kill, a restart and a reboot.",
)
async def test_superseded_and_killed_at_each_moment() -> None:
    """A kill may lose the report, but not the entry."""
    fuse, killed = 0, True
    while killed and fuse < 60:
        host = await started()
        task = await leasing(host)
        host.world.events.clear()
        host.world.holder = None
        fuse += 1
        host.world.calls, host.world.fuse = 0, fuse
        host.want(C)
        await task
        killed = host.world.calls > fuse
        assert [(e.to_name, e.outcome) for e in host.world.history[1:]] == [("b", "superseded"), ("c", "done")], fuse
        assert outcomes(host).count(("b", "superseded", 4)) <= 1
        assert (host.phase, host.record.reason) == (Phase.IDLE, "")
    assert fuse > 20


@pytest.mark.finding(
    "updates: what was left half-way", "A withdrawn update leaves status, desired config and reason true at once."
)
async def test_withdrawn_and_the_status_is_true_at_once() -> None:
    host = await started()
    task = await leasing(host)
    assert (status(host).desired, status(host).target) == ("b", "b")
    host.want(A)
    await task
    assert outcomes(host)[-1] == ("b", "withdrawn", 4)
    assert host.world.history[-1].message == "the current config a is desired again; nothing was changed"
    shown = status_to_dict(status(host), daemon="running")
    assert (shown["phase"], shown["reason"], shown["message"]) == ("Idle", "", "")
    assert (shown["current"], shown["desired"], shown["target"], shown["update_id"]) == ("a", "a", "", "")
    assert shown["current_digest"] == shown["desired_digest"] == host.wanted
    assert (host.record.reason, host.record.to_name) == ("", "")


async def test_without_a_desired_config_an_update_is_withdrawn() -> None:
    host = await started()
    task = await leasing(host)
    host.wanted = ""
    assert host.loop is not None
    host.loop.look_again()
    await task
    assert outcomes(host)[-1] == ("b", "withdrawn", 4)
    assert status(host).desired == "a"


async def test_a_reason_of_an_older_agent_does_not_stay() -> None:
    host = await started()
    host.world.record |= {"reason": "Superseded", "message": "a newer desired config is there"}
    await host.settle()
    assert (host.record.reason, host.record.message) == ("", "")


@pytest.mark.parametrize("reboot", [False, True])
async def test_what_was_interrupted_begins_again_under_its_id(reboot: bool) -> None:
    host = await started()
    task = await leasing(host)
    before = host.record
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if reboot:
        host.world.power_cut()
    host.world.holder = None
    host.world.events.clear()
    await host.settle()
    entry = host.world.history[-1]
    assert (entry.to_name, entry.outcome, entry.update_id) == ("b", "done", before.update_id)
    assert entry.started == before.started
    assert outcomes(host) == [("b", "done", 0)]


@pytest.mark.finding(
    "updates: each end has an outcome",
    "An update that another config replaces before anything was written ends `superseded` (4) with the name of that "
    "config, also over a kill, a restart and a reboot.",
)
@pytest.mark.parametrize("reboot", [False, True])
@pytest.mark.parametrize(("then", "outcome"), [(C, "superseded"), (A, "withdrawn"), (None, "withdrawn")])
async def test_what_was_interrupted_and_is_not_wanted_any_more_ends(then: object, outcome: str, reboot: bool) -> None:
    host = await started()
    task = await leasing(host)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    host.loop = None
    if then is None:
        host.wanted = ""
    else:
        host.want(then)  # type: ignore[arg-type]
    if reboot:
        host.world.power_cut()
    host.world.holder = None
    host.world.events.clear()
    await host.settle()
    assert outcomes(host)[0] == ("b", outcome, 4)
    assert [entry.outcome for entry in host.world.history if entry.to_name == "b"] == [outcome]
    assert not interrupted(host.record)
    assert status(host).update_id == ""


async def test_an_interrupted_update_ends_when_what_is_desired_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await started()
    task = await leasing(host)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    async def garbage(self: Host) -> None:
        raise InvalidInput("line 3: not a mapping")

    monkeypatch.setattr(Host, "_desired", garbage)
    host.world.holder = None
    host.world.events.clear()
    await host.settle()
    assert outcomes(host) == [("b", "superseded", 4)]
    assert (host.phase, host.record.reason) == (Phase.DEGRADED, "InvalidInput")


async def test_an_interrupted_update_that_is_not_given_back_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await started()
    task = await leasing(host)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    async def fails(_run: Run) -> Transition:
        raise Terminal("no space left", reason=Reason.NO_SPACE)

    failing = {(leg, Phase.RELEASING): fails for leg in (Abort, Unreleased)}
    monkeypatch.setattr(machine, "WORK", {**WORK, **failing})
    host.world.holder = None
    host.world.events.clear()
    await host.settle()
    assert outcomes(host) == [("b", "postponed", 1)]
    assert [entry for entry in host.world.history if entry.to_name == "b"] == []


@pytest.mark.parametrize("usable", [True, False])
async def test_an_interrupted_update_of_a_newer_agent_ends(usable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan cannot be read. That must not end the daemon at each start."""
    host = await started()
    task = await leasing(host)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    host.loop = None
    host.world.holder = None
    plan = {**(host.record.plan or {}), "schema": "nodeagent/plan/v9"}
    host.world.record |= {"phase": str(Phase.IDLE), "leg": {"type": "Rest"}, "plan": plan}
    assert interrupted(host.record)

    async def garbage(self: Host) -> None:
        raise InvalidInput("line 3: not a mapping")

    if usable:
        host.want(C)
    else:
        monkeypatch.setattr(Host, "_desired", garbage)
    host.world.events.clear()
    await host.settle()
    assert outcomes(host) == [("b", "superseded", 4), *([("c", "done", 0)] if usable else [])]
    assert not interrupted(host.record)


async def test_a_desired_config_that_cannot_be_read_just_now_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    host = await started()
    task = await leasing(host)
    read, host.world.holder = Host._desired, JANE

    async def away(self: Host) -> None:
        raise Retryable("the store is busy", reason=Reason.STORE_BUSY)

    monkeypatch.setattr(Host, "_desired", away)
    assert host.loop is not None
    host.loop.look_again()
    await asyncio.sleep(60)
    assert host.phase is Phase.LEASING
    monkeypatch.setattr(Host, "_desired", read)
    host.world.holder = None
    await task
    assert outcomes(host)[-1] == ("b", "done", 0)


async def half_way() -> Host:
    """B failed, and the host was left with it, as the settings say."""
    host = await started(app=FakeUnit(bad_until_boot=3))
    host.limits = replace(host.limits, revert=False)
    host.want(B)
    await host.settle()
    assert (host.phase, host.world.disk["/etc/app/x"]) == (Phase.DEGRADED, RegularFile(b"2"))
    host.world.units["app.service"].bad_until_boot = 0
    return host


@pytest.mark.finding(
    "updates: what was left half-way",
    "A withdrawn or superseded update does not hide that an earlier one ended half-way: the host is repaired.",
)
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("then", [A, config("d", {"/etc/app/x": "4", "/etc/quiet/q": "1"})])
async def test_a_superseded_update_leaves_no_half_way_host(then: object, restart: bool) -> None:
    """A host that an earlier update left half-way stays so until an update has a good end."""
    host = await half_way()
    host.world.holder = JANE
    host.want(C)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(5)
    assert (host.phase, host.record.to_name) == (Phase.LEASING, "c")
    if restart:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        host.loop = None
    host.want(then)  # type: ignore[arg-type]
    host.world.holder = None
    if restart:
        await host.settle()
    else:
        await task
    assert (host.phase, host.record.reason) == (Phase.IDLE, "")
    assert not half_way_record(host.record)
    name = "a" if then is A else "d"
    assert host.world.disk["/etc/app/x"] == RegularFile(b"1" if then is A else b"4")
    assert outcomes(host)[-2:] == [("c", "withdrawn" if then is A else "superseded", 4), (name, "done", 0)]


# Requests.


async def request(host: Host, wanted: object) -> None:
    """Record a request like ``Api.apply``."""
    loop, before = host.loop, host.wanted
    assert loop is not None
    host.loop = None
    host.want(wanted)  # type: ignore[arg-type]
    host.loop, digest, host.wanted = loop, host.wanted, before
    async with loop.recorded(ApplyRequest(digest), await host._load(digest)):
        host.wanted = digest


async def verifying(host: Host) -> asyncio.Task[None]:
    host.want(B)
    task = asyncio.create_task(host.settle())
    while host.phase is not Phase.VERIFYING:
        await asyncio.sleep(0.2)
    return task


@pytest.mark.finding(
    "updates: each end has an outcome", "Of two requests at once, the one that is replaced before its turn ends with 4."
)
@pytest.mark.finding(
    "users: first trial of updates", "`desired` is what is desired now, also while another update is under way."
)
async def test_a_request_that_another_replaces_before_its_turn_ends_at_once() -> None:
    host = await started()
    task = await verifying(host)
    await request(host, C)
    await asyncio.sleep(0.1)
    assert outcomes(host)[1:] == [], "it waits for its turn"
    assert (status(host).desired, status(host).target) == ("c", "b")
    await request(host, config("d", {"/etc/app/x": "4", "/etc/quiet/q": "1"}))
    await asyncio.sleep(0.1)
    assert outcomes(host)[1:] == [("c", "superseded", 4)]
    assert ends(host)[1][0].successor == "d"
    assert host.phase is Phase.VERIFYING
    await task
    assert outcomes(host)[2:] == [("b", "done", 0), ("d", "done", 0)]
    assert [entry.to_name for entry in host.world.history] == ["a", "b", "d"], "what never began is no update"


async def test_a_request_for_the_config_that_is_being_reverted_gets_the_end_of_its_own_try() -> None:
    host = await started(app=FakeUnit(dies_after=1))
    host.limits = replace(host.limits, may_reboot=False)
    host.want(B)
    task = asyncio.create_task(host.settle())
    async with asyncio.timeout(600):
        while not isinstance(host.record.leg, Revert):
            await asyncio.sleep(0.2)
        app = host.world.units["app.service"]
        app.dies_after = app.died_at = None
        await request(host, B)
        await task
        await host.settle()
    found = [event for event in host.world.events if isinstance(event, UpdateFinished)]
    assert [(e.entry.outcome, e.tried_again) for e in found[-2:]] == [("reverted", True), ("done", False)]


@pytest.mark.finding(
    "users: first trial of updates",
    "While the host is `Degraded`, `desired` names the config that is the reason.",
)
async def test_degraded_is_about_the_desired_config_that_the_status_names() -> None:
    """A client that polls the status must not take the reason of one config for that of the next."""
    host = await started()
    host.limits = replace(host.limits, revert=False, may_reboot=False)
    task = await verifying(host)
    host.world.units["app.service"].active = "failed"
    host.want(C)
    await task
    await host.settle()
    folded = Status()
    about = []
    for event in host.world.events:
        folded = fold(folded, event)
        if folded.phase is Phase.DEGRADED:
            about.append((type(event), folded.desired))
    assert (HostDegraded, "b") in about
    assert (DesiredChanged, "c") not in about, "c was not looked at yet"


async def test_a_request_for_what_runs_already_ends() -> None:
    host = await started()
    host.build()
    host.world.events.clear()
    await request(host, A)
    await host.turn_and_settle(host.loop)  # type: ignore[arg-type]
    assert outcomes(host) == [("a", "unchanged", 0)]
    await host.settle()
    assert len(ends(host)) == 1


async def test_a_request_during_an_update_to_the_same_config_ends_with_it() -> None:
    host = await started()
    task = await verifying(host)
    await request(host, B)
    await task
    assert outcomes(host)[1:] == [("b", "done", 0)]


async def test_a_refused_request_is_answered_each_time() -> None:
    host = await started()
    host.world.disk["/etc/quiet/q"] = RegularFile(b"by hand")
    loop = host.build()
    host.world.events.clear()
    for _ in range(2):
        await request(host, B)
        await loop.turn()
    assert outcomes(host) == [("b", "refused", 4)] * 2
    await loop.turn()
    assert len(ends(host)) == 2, "without a request there is no answer"


async def test_a_config_that_was_read_before_a_request_does_not_end_it() -> None:
    host = await started()
    loop = host.build()
    release = asyncio.Event()
    read = loop.desired.source

    async def slowly() -> object:
        found = await read()
        await release.wait()
        return found

    loop.desired.source = slowly
    look = asyncio.create_task(loop.desired.read())
    await asyncio.sleep(1)
    host.world.events.clear()
    await request(host, B)
    release.set()
    await look
    assert outcomes(host) == []
    loop.desired.source = read
    await host.turn_and_settle(loop)
    assert outcomes(host) == [("b", "done", 0)]


# Phases.


@pytest.mark.finding("users: first trial of updates", "Each phase that is entered is reported, also after a boot.")
async def test_each_phase_that_is_entered_is_reported_also_after_a_boot() -> None:
    host = await started()
    host.world.events.clear()
    host.want(config("b", {"/etc/app/x": "1", "/etc/quiet/q": "1", "/etc/unlisted": "1"}))
    await host.settle()
    phases = [event.about.phase for event in host.world.events if isinstance(event, PhaseEntered)]
    assert list(dict.fromkeys(phases)) == [
        Phase.LEASING,
        Phase.WRITING,
        Phase.ACTING,
        Phase.REBOOTING,
        Phase.VERIFYING,
        Phase.RELEASING,
        Phase.IDLE,
    ]
    resumed = next(i for i, event in enumerate(host.world.events) if isinstance(event, UpdateResumed))
    after = Status(phase=Phase.REBOOTING, message="rebooting into b")
    for event in host.world.events[resumed : resumed + 2]:
        after = fold(after, event)
    assert (after.phase, after.message) != (Phase.REBOOTING, "verify")
    assert after.phase is Phase.VERIFYING


async def test_a_kill_at_every_moment_leaves_one_entry_for_each_update() -> None:
    """Whatever is interrupted by a kill has exactly one end in the history."""
    fuse = 0
    while True:
        host = await started()
        fuse += 3
        host.world.calls, host.world.fuse = 0, fuse
        host.want(B)
        try:
            await host._live()
        except Killed:
            pass
        else:
            break
        host.world.fuse = -1
        await host.settle()
        ended = [(entry.update_id, entry.outcome) for entry in host.world.history[1:]]
        assert [outcome for _, outcome in ended] == ["done"], fuse
        assert begun(host.world.events)[1:] == [update_id for update_id, _ in ended], fuse


def said(host: Host, phase: Phase) -> list[str]:
    return [
        e.message for e in host.world.events if isinstance(e, PhaseEntered) and e.about.phase is phase and e.message
    ]


@pytest.mark.finding(
    "users: first trial of updates",
    "Verifying says which unit it waits for, or that it watches units, and until when.",
)
async def test_verifying_says_for_what_it_waits_and_until_when(monkeypatch: pytest.MonkeyPatch) -> None:
    restart = FakeUnits.restart

    async def slowly(self: FakeUnits, unit: str, deadline: float, **more: Any) -> Any:
        result = await restart(self, unit, deadline, **more)
        self.world.units[unit].active = "activating"
        return result

    host = await started()
    monkeypatch.setattr(FakeUnits, "restart", slowly)
    host.want(B)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(1)
    assert status(host).message.startswith("app.service is still starting; waiting for it until 2026-01-01T00:01:")
    assert status(host).phase is Phase.VERIFYING
    host.world.units["app.service"].active = "active"
    await asyncio.sleep(2)
    assert status(host).message.startswith("the units run; they are watched until 2026-01-01T00:00:")
    await task
    assert len(said(host, Phase.VERIFYING)) == 2 + 1, "each change once; one more of the first update"
    assert status(host).message == ""


@pytest.mark.finding(
    "users: first trial of updates",
    "Verifying says which unit it waits for, or that it watches units, and until when.",
)
async def test_verifying_after_a_boot_says_it_too() -> None:
    host = await started()
    host.want(
        config(
            "b",
            {"/etc/app/x": "1", "/etc/quiet/q": "1", "/etc/unlisted": "1"},
            units=[UnitEntry("app.service", enabled=True)],
        )
    )
    await host.settle()
    (message,) = said(host, Phase.VERIFYING)[1:]
    assert message.startswith("the units run; they are watched until ")


@pytest.mark.finding("users: first trial of updates", "RebootBlocked says until when, and what happens then.")
@pytest.mark.parametrize(("override", "then"), [(True, "it is overridden"), (False, "the reboot is given up")])
async def test_a_blocked_reboot_says_until_when_and_what_then(override: bool, then: str) -> None:
    host = await started()
    host.limits = replace(host.limits, inhibitor_override=override)
    host.world.blockers = [Inhibitor("apt", "installing", "apt (7)")]
    host.want(config("b", {"/etc/app/x": "1", "/etc/quiet/q": "1", "/etc/unlisted": "1"}))
    await host.settle()
    (message,) = [e.message for e in host.world.events if isinstance(e, UpdateWaiting)]
    assert message.startswith("the reboot waits until 2026-01-01T00:02:")
    assert message.endswith(f"Z for apt (apt (7)): installing; then {then}")
