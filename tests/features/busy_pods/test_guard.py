# SPDX-License-Identifier: Apache-2.0
"""Busy pods in an update on a node in memory: what they hold, when they are looked for, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from nodeagent.agent.plan_answer import plan_answer
from nodeagent.core.config.machineconfig import MachineConfig
from nodeagent.errors import Refused
from nodeagent.features.busy_pods.events import BusyPod
from nodeagent.features.busy_pods.guard import NOTE, BusyGuard, HeldWork, held_of, held_text
from nodeagent.features.busy_pods.reasons import BusyReason
from nodeagent.features.busy_pods.settings import BusyPodSettings
from nodeagent.update.history.lasting import Hold
from nodeagent.update.next.preflight import Preflight
from nodeagent.update.ports.events import UpdateWaiting, Warned
from nodeagent.update.run import Ports
from nodeagent.update.states import Phase
from tests.update.test_outcomes import outcomes
from tests.world import FakeUnit, kill_points
from tests.world.cluster_host import DRAIN, OLD, REBOOT, RESTART, Around, ClusterHost, all_given_back
from tests.world.run import kinds

pytestmark = pytest.mark.looptime

UNKNOWN = Refused("it is not known which pods run on this node", reason=BusyReason.BUSY_PODS_UNKNOWN)


@dataclass
class FakePods:
    """Implements ``guard.BusyPods``. ``answers`` (NAMESPACE/NAME) are given one after the other, the last one without
    end. ``asked`` has whether the slot was held at each request."""

    around: Around
    answers: list[Sequence[str] | Refused]
    settings: BusyPodSettings = field(default_factory=lambda: BusyPodSettings(selectors=("app=backup",)))
    asked: list[bool] = field(default_factory=list)

    async def running(self) -> Sequence[BusyPod]:
        self.asked.append(bool(self.around.slot))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Refused):
            raise answer
        return [BusyPod(*pod.split("/"), self.settings.selectors[0]) for pod in answer]


@dataclass
class BusyHost(ClusterHost):
    busy: FakePods = field(init=False)

    def __post_init__(self) -> None:
        self.busy = FakePods(self.around, [()])

    def ports(self) -> Ports:
        ports = super().ports()
        guard = BusyGuard(self.busy, ports.store, ports.clock, ports.power.boot_id, ports.reporter)
        ports.coordination.guards = [*ports.coordination.guards, guard]
        return replace(ports, guards=[guard])

    def answers(self, *answers: Sequence[str] | Refused) -> None:
        self.busy.answers = list(answers)


async def started() -> BusyHost:
    units = {name: FakeUnit() for name in ("app.service", "web.service")}
    units["trust.service"] = FakeUnit(type="oneshot")
    host = BusyHost()
    host.world.units.update(units)
    host.want(OLD)
    await host.settle()
    for seen in (host.world.done, host.world.events, host.around.log, host.around.asked, host.busy.asked):
        seen.clear()
    host.world.calls = 0
    return host


async def notes(host: BusyHost, new: MachineConfig) -> list[str]:
    ports = host.ports()
    preflight = Preflight(ports, host.limits, (), host._policy, host.on_drift, host._view)
    old, desired = [await host._load(host.add(each)) for each in (OLD, new)]
    update = await preflight.prepare(desired, [old], dirty=False, first=False)
    found: list[str] = (await plan_answer(ports, update, diff=False, private=False))["notes"]
    return [note for note in found if note.startswith("busy pods: ")]


async def test_a_plan_names_the_selectors_and_the_pods() -> None:
    host = await started()
    note = "busy pods: the update begins when no pod of this node matches app=backup"
    assert await notes(host, DRAIN) == [note]
    assert await notes(host, RESTART) == []
    host.busy.settings = BusyPodSettings(selectors=("app=backup", "b"), namespaces=("ci", "db"), longest_wait=3600)
    host.answers(("ci/a", "ci/b", "ci/c", "ci/d"))
    held = "busy pods: 4 pods hold the work on this node off, for 3600 s at most: ci/a, ci/b, ci/c and 1 more"
    assert await notes(host, REBOOT) == [f"{note} or b in ci, db", held]
    host.answers(UNKNOWN)
    assert (await notes(host, REBOOT))[1:] == ["busy pods: it is not known which pods run on this node"]


@pytest.mark.parametrize("new", [DRAIN, REBOOT], ids=lambda config: config.name)
async def test_pods_hold_an_update_that_stops_them(new: MachineConfig) -> None:
    host = await started()
    host.answers(("ci/a",))
    host.want(new)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(3600)
    assert host.phase is Phase.LEASING
    all_given_back(host)
    assert kinds(host, UpdateWaiting) == [BusyReason.BUSY_PODS], "one line, however often it is tried"
    (waiting,) = (event for event in host.world.events if isinstance(event, UpdateWaiting))
    assert waiting.message == "1 pod holds the work on this node off: ci/a; the update continues when that is over"
    assert 40 < len(host.busy.asked) < 120, "once a minute"
    assert not any(host.busy.asked), "nothing is taken for it"
    host.answers(())
    await task
    assert (host.phase, outcomes(host)[-1][:2]) == (Phase.IDLE, (new.name, "done"))
    all_given_back(host)


async def test_the_pauses_grow_although_the_pods_change() -> None:
    host = await started()
    host.answers(*((f"ci/build-{number}",) for number in range(1000)))
    host.want(DRAIN)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(3600)
    assert 40 < len(host.busy.asked) < 120
    host.answers(())
    await task


async def test_pods_hold_no_update_that_leaves_them_running() -> None:
    host = await started()
    host.answers(("ci/a",))
    host.want(RESTART)
    await host.settle()
    assert (host.phase, host.busy.asked) == (Phase.IDLE, [])


@pytest.mark.parametrize("then", [("ci/late",), UNKNOWN], ids=["pod", "outage"])
async def test_a_pod_that_comes_in_between_makes_it_give_everything_back(then: Sequence[str] | Refused) -> None:
    host = await started()
    host.answers((), then, then, then, ())
    host.want(DRAIN)
    await host.settle()
    assert host.busy.asked == [False, True, False, False, False, True]
    log = host.around.log
    assert log[:5] == ["slot", "lease", "release lease", "release slot", "slot"], log
    assert log.index("drain") > 4
    assert (host.phase, outcomes(host)[-1][:2]) == (Phase.IDLE, ("drain", "done"))
    all_given_back(host)


async def test_pods_that_come_after_the_begin_hold_nothing() -> None:
    host = await started()
    host.answers((), (), ("ci/late",))
    host.want(REBOOT)
    await host.settle()
    assert (host.phase, host.busy.asked) == (Phase.IDLE, [False, True])


async def test_without_an_answer_the_update_waits() -> None:
    host = await started()
    host.answers(UNKNOWN)
    host.want(DRAIN)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(600)
    assert (host.phase, kinds(host, UpdateWaiting)) == (Phase.LEASING, [BusyReason.BUSY_PODS_UNKNOWN])
    host.answers(())
    await task
    assert host.phase is Phase.IDLE


async def test_an_operator_does_not_wait_for_them() -> None:
    host = await started()
    host.answers(("ci/a",))
    host.want(DRAIN)
    options = {"busy_pods": "evict"}
    host.world.request = host.request().held(Hold("", requester="root", options=options))
    await host.settle()
    assert (host.phase, host.busy.asked, outcomes(host)[-1][:2]) == (Phase.IDLE, [], ("drain", "done"))


def longest(host: BusyHost, seconds: float) -> None:
    host.busy.settings = BusyPodSettings(selectors=("app=backup",), longest_wait=seconds)


async def test_after_the_longest_wait_it_begins_and_says_so() -> None:
    host = await started()
    host.answers(("ci/a",))
    longest(host, 3600)
    host.want(DRAIN)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(3500)
    assert host.phase is Phase.LEASING
    await task
    message = "continuing: 1 pod holds the work on this node off, for 3600 s at most: ci/a"
    assert message in [event.message for event in host.world.events if isinstance(event, Warned)]
    assert message in host.world.history[-1].message
    assert outcomes(host)[-1][:2] == ("drain", "done")


async def test_the_longest_wait_outlasts_a_restart() -> None:
    host = await started()
    host.answers(("ci/a",))
    longest(host, 3600)
    host.want(DRAIN)
    for _ in range(4):
        task = asyncio.create_task(host.settle())
        await asyncio.sleep(840)
        assert host.phase is Phase.LEASING
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    begun = asyncio.get_running_loop().time()
    await host.settle()
    # At each restart, the time since the last write of the note is lost.
    assert asyncio.get_running_loop().time() - begun < 1800
    assert outcomes(host)[-1][:2] == ("drain", "done")


async def test_a_note_of_another_form_begins_the_wait_again() -> None:
    host = await started()
    host.world.notes[NOTE] = '{"work": 7'
    host.answers(("ci/a",))
    longest(host, 600)
    host.want(DRAIN)
    await host.settle()
    assert outcomes(host)[-1][:2] == ("drain", "done")


async def test_what_waited_is_forgotten_when_nothing_waits() -> None:
    host = await started()
    longest(host, 3600)
    ports = host.ports()
    guard = BusyGuard(host.busy, ports.store, ports.clock, ports.power.boot_id, ports.reporter)
    assert await guard.rest() is None
    host.answers(("ci/a",))
    with pytest.raises(Refused):
        await guard.permit_begin("update to a", {})
    assert await guard.rest() == 900
    await asyncio.sleep(901)
    assert (await guard.rest(), host.world.notes[NOTE]) == (None, "")


def held(**changes: Any) -> HeldWork:
    return replace(HeldWork("update to a", "boot", 1000.0, 500.0), **changes)


@pytest.mark.parametrize(
    ("now", "boot", "waited"),
    [
        (1060.0, "boot", 560.0),
        (1900.0, "boot", 1400.0),
        (1901.0, "boot", 500.0),
        (5.0, "next", 500.0),
    ],
)
def test_time_without_a_check_does_not_count(now: float, boot: str, waited: float) -> None:
    assert held().again(now, boot) == held(seen=now, boot=boot, waited=waited)


def test_the_stored_wait_is_read_back() -> None:
    assert held_of(held_text(held())) == held()
    assert held_of("") is None


async def failing(unit: FakeUnit) -> BusyHost:
    host = await started()
    host.world.units["app.service"] = unit
    host.want(RESTART)
    return host


async def test_a_fallback_reboot_that_would_stop_them_becomes_a_revert() -> None:
    """The restart disturbs no pod, so it did not wait; it fails, and a reboot would stop the pods."""
    host = await failing(FakeUnit(fail_restarts=1))
    host.answers(("ci/a",))
    await host.settle()
    assert outcomes(host)[-1][:2] == ("restart", "reverted")
    assert "reboot" not in host.actions()
    all_given_back(host)


async def test_a_fallback_reboot_without_an_answer_takes_place() -> None:
    host = await failing(FakeUnit(bad_until_boot=2))
    host.answers(UNKNOWN)
    await host.settle()
    assert (outcomes(host)[-1][:2], host.actions().count("reboot")) == (("restart", "done-after-fallback"), 1)


@pytest.mark.long
@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point(power: bool) -> None:
    """A pod comes in between once, and ends."""

    async def busy() -> BusyHost:
        host = await started()
        longest(host, 86400)
        host.answers(("ci/a",), (), ("ci/late",), ("ci/late",), ())
        host.want(DRAIN)
        return host

    whole = await busy()
    await whole.settle()
    total = whole.world.calls
    assert total > 20
    for fuse in kill_points(total, case=power):
        host = await busy()
        await host.kill_at(fuse, power=power)
        await host.settle()
        assert (host.phase, host.configs[host.world.current].name) == (Phase.IDLE, "drain"), fuse
        all_given_back(host)
        assert host.world.notes.get(NOTE, "") == "", fuse
