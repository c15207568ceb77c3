# SPDX-License-Identifier: Apache-2.0
"""An update that has its end, and cannot give back what it took: one end, no rejection, and a retry."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from nodeagent.core.config.machineconfig import MachineConfig, meaning
from nodeagent.errors import Refused, Terminal
from nodeagent.reasons import Reason
from nodeagent.update.machine import RELEASE_WAIT, WORK
from nodeagent.update.ports.events import UpdateDone
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.record import half_way
from nodeagent.update.run import Run
from nodeagent.update.states import Phase, Rest, Transition, Unreleased
from nodeagent.update.wait import CONFIG, NotNow
from tests.agent.test_api import api
from tests.update.test_outcomes import ends, outcomes
from tests.world import FakeUnit, Fault, Killed, cluster_host
from tests.world.cluster_host import ClusterHost
from tests.world.run import Host, change_work, config

pytestmark = pytest.mark.looptime

NEWEST = config("newest", {"/etc/app/x": "7", "/etc/web/x": "1"})


def breaks(host: Host, fault: Exception | Phase) -> Callable[[], None]:
    """Each release of the lease meets ``fault``, or leads to a phase to which no edge leads. Returns the repair."""
    build = type(host).build

    def broken() -> Any:
        loop = build(host)

        async def work(_run: Run) -> Transition:
            if isinstance(fault, Exception):
                raise fault
            return Transition(fault)

        change_work(loop, lambda phase, real: work if phase is Phase.RELEASING else real)
        return loop

    host.build = broken  # type: ignore[method-assign]

    def repair() -> None:
        host.build = build.__get__(host)  # type: ignore[method-assign]
        host.loop = None

    return repair


async def done(host: ClusterHost) -> None:
    host.want(cluster_host.DRAIN)
    await host.settle()


async def reverted(host: ClusterHost) -> None:
    host.limits = replace(host.limits, may_reboot=False)
    host.world.units["app.service"] = FakeUnit(fail_restarts=1)
    host.want(cluster_host.DRAIN)
    await host.settle()


async def canceled(host: ClusterHost) -> None:
    """An operator uncordons the node twice."""
    host.around.why_lost = "DrainCanceled"
    host.around.pods, host.around.stuck = list(cluster_host.PODS), True
    host.want(cluster_host.DRAIN)
    task = asyncio.create_task(host.settle())
    while host.phase is not Phase.DRAINING:
        await asyncio.sleep(0.1)
    host.around.lost.add(host.record.update_id)
    await task
    host.around.lost.clear()
    host.around.stuck = False


async def superseded(host: ClusterHost) -> None:
    host.around.gate = Refused("another controller works on it", reason="MachineBusy")
    host.want(cluster_host.DRAIN)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(20)
    assert host.phase is Phase.LEASING
    host.want(NEWEST)
    await task
    host.around.gate = None


async def interrupted(host: ClusterHost) -> None:
    host.around.gate = Refused("another controller works on it", reason="MachineBusy")
    host.want(cluster_host.DRAIN)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(20)
    assert host.phase is Phase.LEASING
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    host.loop = None
    await host.settle()
    host.around.gate = None


End = Callable[[ClusterHost], Awaitable[None]]
"""Brings the host to the end of an update, in a phase Releasing that fails."""

ENDS: list[tuple[End, str, list[str], str]] = [
    # How it ended, the outcome that is reported, those of the history, the phase and config after the repair.
    (done, "done", ["done"], "drain"),
    (reverted, "reverted", ["reverted"], "old"),
    (canceled, "postponed", [], "old"),
    (superseded, "superseded", ["superseded"], "newest"),
    (interrupted, "postponed", [], "drain"),
]
FAULTS = [Terminal("no space left", reason=Reason.NO_SPACE), KeyError("x"), Phase.WRITING]
REASONS = ["NoSpace", "InternalError", "IllegalTransition"]
each_end = pytest.mark.parametrize("end", ENDS, ids=[end[0].__name__ for end in ENDS])


async def failed(end: End, fault: Exception | Phase) -> tuple[ClusterHost, Callable[[], None], str]:
    """Return the host, the function that repairs it, and the id of the update."""
    host = await cluster_host.at_old()
    host.world.history.clear()
    repair = breaks(host, fault)
    await end(host)
    return host, repair, host.record.update_id


@each_end
@pytest.mark.parametrize(("fault", "reason"), list(zip(FAULTS, REASONS, strict=True)), ids=REASONS)
async def test_an_update_that_cannot_give_back_has_one_end(
    end: tuple[End, str, list[str], str], fault: Exception | Phase, reason: str
) -> None:
    how, outcome, entries, after = end
    host, repair, update_id = await failed(how, fault)
    rejected = [one.name for one in host.record.lasting.rejections]
    held = (host.world.holder, host.around.slot, host.around.cordon)
    for _ in range(3):
        assert (host.phase, host.record.reason, type(host.record.leg)) == (Phase.DEGRADED, reason, Unreleased)
        assert [entry.outcome for entry in host.world.history] == entries
        assert [str(entry.outcome) for entry, _ in ends(host) if entry.update_id == update_id] == [outcome]
        assert [one.name for one in host.record.lasting.rejections] == rejected
        assert (host.world.holder, host.around.slot, host.around.cordon) == held
        assert not half_way(host.record)
        await host.settle()
    assert rejected == (["drain"] if how in (reverted, canceled) else [])
    assert len([event for event in host.world.events if isinstance(event, UpdateDone)]) == (how is done)
    repair()
    await host.settle()
    cluster_host.all_given_back(host)
    reasons = {reverted: "Reverted", canceled: "DrainCanceled"}
    assert host.record.reason == reasons.get(how, "")
    assert host.phase is (Phase.DEGRADED if how in reasons else Phase.IDLE)
    assert host.configs[host.world.current].name == after
    assert [str(entry.outcome) for entry, _ in ends(host) if entry.update_id == update_id] == [outcome]
    assert [e.outcome for e in host.world.history if e.update_id == update_id] == entries
    assert len([e for e in host.world.events if isinstance(e, UpdateDone)]) == (after != "old")


@each_end
async def test_a_newer_config_begins_after_everything_is_given_back(end: tuple[End, str, list[str], str]) -> None:
    host, repair, _ = await failed(end[0], FAULTS[0])
    repair()
    host.want(NEWEST)
    await host.settle()
    assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, "newest")
    cluster_host.all_given_back(host)


async def test_giving_back_is_retried_without_a_restart() -> None:
    host = await cluster_host.at_old()
    repair = breaks(host, KeyError("x"))
    loop = host.build()
    host.want(cluster_host.DRAIN)
    assert (delay := await loop.turn()) is not None
    assert 0 < delay < 60
    delays = [await loop.turn() or 0.0 for _ in range(9)]
    assert delays == sorted(delays)
    assert delays[0] > delay
    assert delays[-1] <= 1.5 * CONFIG.longest
    repair()
    loop.executor.work = dict(WORK)
    assert await loop.turn() == 0.0
    assert (host.phase, type(host.record.leg)) == (Phase.IDLE, Rest)
    cluster_host.all_given_back(host)


@each_end
async def test_the_end_is_reported_although_the_release_waits(end: tuple[End, str, list[str], str]) -> None:
    """A client that waits for the update gets its end; the release goes on, also over a restart."""
    how, outcome, entries, after = end
    host = await cluster_host.at_old()
    host.world.history.clear()
    repair = breaks(host, NotNow("the API server does not answer", reason=Reason.KUBE_UNREACHABLE))
    task = asyncio.create_task(how(host))
    while host.phase is not Phase.RELEASING:
        await asyncio.sleep(1)
    update_id = host.record.update_id
    assert not ends(host), "it may be released in a moment"
    await asyncio.sleep(2 * RELEASE_WAIT)
    assert [str(entry.outcome) for entry, _ in ends(host) if entry.update_id == update_id] == [outcome]
    assert [entry.outcome for entry in host.world.history] == entries
    assert (host.phase, type(host.record.leg)) == (Phase.RELEASING, Unreleased)
    assert host.record.reason == "KubeUnreachable"
    repair()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    host.around.gate = None
    await host.settle()
    cluster_host.all_given_back(host)
    assert host.configs[host.world.current].name == after
    assert [str(entry.outcome) for entry, _ in ends(host) if entry.update_id == update_id] == [outcome]


async def test_a_kill_while_it_gives_back_adds_no_end() -> None:
    host, repair, update_id = await failed(done, FAULTS[0])
    repair()
    host.world.faults.append(Fault(f"save {Phase.IDLE}", Killed(), times=None))
    with pytest.raises(AssertionError, match="no rest"):
        await host.settle(2)
    assert (host.phase, type(host.record.leg)) == (Phase.RELEASING, Unreleased)
    host.world.repair()
    await host.settle()
    assert [entry.outcome for entry in host.world.history] == ["done"]
    assert [str(entry.outcome) for entry, _ in ends(host)] == ["done"]
    assert update_id == host.world.history[0].update_id
    assert host.phase is Phase.IDLE


async def test_a_rollback_after_a_good_end_goes_to_the_config_before() -> None:
    host, repair, _ = await failed(done, FAULTS[0])
    new, old = host.world.current, host.world.previous
    repair()
    assert await api(host, Phase.DEGRADED).rollback() == "old"
    assert host.world.request == ApplyRequest(old, new, meaning(cluster_host.DRAIN))
    host.want(cluster_host.OLD)
    await host.settle()
    assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, "old")


async def test_the_current_config_can_be_applied_again_after_a_good_end() -> None:
    """The config did not fail, so it is not avoided. The client gets an answer of its own."""
    host, repair, _ = await failed(done, FAULTS[0])
    repair()
    loop = host.build()
    async with loop.recorded(host.request(), await host._load(host.wanted)):
        pass
    while await loop.turn() is not None:
        pass
    assert [(str(entry.outcome), code) for entry, code in ends(host)] == [("done", 0), ("unchanged", 0)]
    assert (host.phase, host.world.request) == (Phase.IDLE, None)


async def test_a_repair_that_was_given_up_leaves_the_node_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback then avoids the config that was left half-way, not the repair that wrote nothing."""
    host = await cluster_host.at_old()
    host.limits = replace(host.limits, revert=False, may_reboot=False)
    host.world.units["app.service"] = FakeUnit(bad_until_boot=99)
    host.want(cluster_host.RESTART)
    await host.settle()
    half, failed_at = host.record.to_digest, host.record.reason
    assert half_way(host.record), failed_at
    host.world.units["app.service"] = FakeUnit()
    breaks(host, FAULTS[0])
    await superseded(host)
    assert (isinstance(host.record.leg, Unreleased), half_way(host.record)) == (True, True)
    monkeypatch.setattr(cluster_host, "holds", lambda *_: None)  # the desired file is no part of an update
    await api(host, Phase.DEGRADED).rollback()
    assert host.world.request is not None
    assert host.world.request.avoid == half


async def serving(host: Host) -> asyncio.Task[None]:
    """The daemon, which goes on when something else is desired."""
    loop = host.build()

    async def live() -> None:
        await loop.resume()
        while True:
            delay = await loop.turn()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(loop._wake.wait(), delay)
            loop._wake.clear()

    task = asyncio.create_task(live())
    await asyncio.sleep(1)
    return task


async def requested(host: Host, wanted: MachineConfig) -> None:
    host.want(wanted)
    assert host.loop is not None
    async with host.loop.recorded(host.request(), await host._load(host.wanted)):
        pass


async def test_a_config_that_is_requested_again_while_it_is_given_up_is_not_superseded() -> None:
    host = await cluster_host.at_old()
    host.around.gate = Refused("another controller works on it", reason="MachineBusy")
    task = await serving(host)
    await requested(host, cluster_host.DRAIN)
    await asyncio.sleep(30)
    update_id = host.record.update_id
    host.around.go_away()
    for wanted in (cluster_host.RESTART, cluster_host.DRAIN):
        await requested(host, wanted)
        await asyncio.sleep(100)
        assert host.phase is Phase.RELEASING
        assert host.record.aborted is not None
        assert host.record.aborted.reason == "Superseded"
    host.around.gate = None
    host.around.come_back()
    await asyncio.sleep(500)
    task.cancel()
    assert outcomes(host) == [("restart", "superseded", 4), ("drain", "done", 0)]
    assert [(entry.outcome, entry.update_id) for entry in host.world.history[1:]] == [("done", update_id)]
    cluster_host.all_given_back(host)
