# SPDX-License-Identifier: Apache-2.0
"""Maintenance over the host in memory: what is asked for, what is in the way, and every kill in between."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest

from nodeagent.agent.report.report import Report
from nodeagent.core.times import add_seconds
from nodeagent.errors import AgentError, InvalidInput, Refused, ServiceUnavailable, Terminal, Unreachable
from nodeagent.features.maintenance.decide import NOTE, Maintenance, MaintenanceRequest, from_text, to_text
from nodeagent.features.maintenance.events import MaintenanceChanged
from nodeagent.features.maintenance.manager import MaintenanceManager
from nodeagent.features.maintenance.view import MaintenanceStatus
from nodeagent.reasons import Reason
from nodeagent.report.status import Status
from nodeagent.report.status_json import status_to_dict
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import Event, UpdateContext, Warned
from nodeagent.update.ports.system import Inhibitor
from nodeagent.update.run import Ports, UpdatePolicy
from nodeagent.update.stages.coordination import Coordination, Operation
from tests.world import (
    FakeClock,
    FakeFiles,
    FakeHealth,
    FakeLease,
    FakePower,
    FakeReporter,
    FakeStore,
    FakeUnitFiles,
    FakeUnits,
    FakeUsers,
    Fault,
    Killed,
    LocalService,
    Outage,
    World,
)

pytestmark = pytest.mark.looptime

LIMITS = UpdatePolicy(inhibitor_wait=120, reboot_grace=60, warn_users=0, lease_retry=15)
UPDATE = Holder("nodeagent", "u1", "update to worker-2", "now")


def update(operation: str, reason: str = "update") -> Operation:
    return Operation(operation, "nodeagent", reason, queued=False)


class Clock(FakeClock):
    """A wall clock that goes with the loop's."""

    def now(self) -> str:
        return add_seconds("2026-01-01T00:00:00.000Z", self.monotonic())


class Lease(FakeLease):
    """One whose server can be away."""

    away: AgentError | None = None

    async def acquire(self, holder: str, operation: str, reason: str) -> None:
        self._answer()
        await super().acquire(holder, operation, reason)

    async def check(self, operation: str, *, need: float = 0.0, offline: bool = False) -> None:
        self._answer()
        await super().check(operation)

    async def release(self, operation: str) -> None:
        self._answer()
        await super().release(operation)

    def _answer(self) -> None:
        if self.away is not None:
            raise self.away


@dataclass
class Node:
    """A node that takes ``seconds`` to empty, or fails."""

    world: World
    seconds: float = 5.0
    error: AgentError | None = None
    cordoned: str = ""
    gone: bool = False

    async def drain(self, operation: str, deadline: float) -> None:
        self.world.tick()
        self.cordoned = operation
        await asyncio.sleep(min(self.seconds, deadline))
        if self.error is not None:
            raise self.error
        self.world.done.append(f"{self.world.boot}:drained")

    async def uncordon(self, operation: str) -> None:
        self.world.tick()
        if self.gone:
            raise Refused("there is no Node", reason=Reason.NODE_UNKNOWN)
        if self.cordoned == operation:
            self.cordoned = ""

    async def advice(self) -> str:
        return ""


@dataclass
class Gate:
    """Another actor that works on the node without a lease, and etcd."""

    refusal: Refused | None = None
    leaving: bool = False
    held: bool = False
    busy: Refused | None = None
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    async def check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    permit_stop = before_stop = check

    async def permit_begin(self, work: str, options: Mapping[str, str]) -> None:
        self.asked.append((work, dict(options)))
        if self.busy is not None:
            raise self.busy

    async def hold_machine(self) -> None:
        if self.leaving:
            raise Refused("the machine is being deleted", reason=Reason.NODE_LEAVING)
        self.held = True

    async def free_machine(self) -> None:
        self.held = False


@dataclass
class Notes:
    """The notes of the store of a scene."""

    scene: Scene

    async def note(self, key: str) -> str:
        return await self.scene.kept(key)

    async def keep_note(self, key: str, text: str) -> None:
        await self.scene.keep(key, text)


@dataclass
class Scene:
    world: World = field(default_factory=World)
    note: Maintenance | None = None
    status: Status = field(default_factory=Status)
    freed: int = 0
    events: list[Event] = field(default_factory=list)
    gates: Gate = field(default_factory=Gate)
    guard: Gate = field(default_factory=Gate)
    away: AgentError | None = None
    full: AgentError | None = None  # of the store
    limits: UpdatePolicy = LIMITS

    def __post_init__(self) -> None:
        self.node = Node(self.world)

    async def kept(self, key: str) -> str:
        assert key == NOTE
        return to_text(self.note) if self.note is not None else ""

    async def keep(self, key: str, text: str) -> None:
        assert key == NOTE
        self.world.tick()
        if self.full is not None:
            raise self.full
        self.note = from_text(text)
        self.world.tick()

    def build(self, *, cluster: bool = True) -> MaintenanceManager:
        world = self.world
        world.rebooting = asyncio.Event()
        power = FakePower(world)
        self.report = Report(Status(boot_id=power.boot_id()))
        self.report.add(lambda event, _: self.events.append(event))
        self.lease = Lease(world)
        clock = Clock(world)
        self.coordination = Coordination(
            self.lease,
            gates=self.gates,
            guards=[self.guard],
            node=self.node if cluster else None,
            report=self.report.lease,
        )
        ports = Ports(
            FakeStore(world),
            FakeFiles(world),
            FakeUnits(world),
            FakeUsers(world),
            FakeHealth(world),
            power,
            self.coordination,
            None,
            self.node if cluster else None,
            clock,
            FakeReporter(world),
            FakeUnitFiles(world),
        )

        def freed() -> None:
            self.freed += 1

        return MaintenanceManager(ports, Notes(self), self.report, limits=lambda: self.limits, on_release=freed)

    @contextlib.asynccontextmanager
    async def life(self, *, cluster: bool = True) -> AsyncIterator[MaintenanceManager]:
        """One process of the daemon."""
        keeper = self.build(cluster=cluster)
        await keeper.load()
        running = asyncio.create_task(keeper.run())
        try:
            yield keeper
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, Killed):
                await running

    def shown(self) -> dict[str, object] | None:
        found: dict[str, object] | None = status_to_dict(self.report.status, daemon="running")["maintenance"]
        return found

    @property
    def state(self) -> object:
        shown = self.shown()
        return shown and shown["state"]

    @property
    def holder(self) -> str:
        return self.world.holder.name if self.world.holder else ""


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def refused(what: object, reason: str) -> str:
    with pytest.raises(AgentError) as caught:
        await what  # type: ignore[misc]
    assert caught.value.reason == reason
    return caught.value.message


async def test_begun_shown_and_given_back(scene: Scene) -> None:
    async with scene.life() as keeper:
        note = await keeper.start("root", MaintenanceRequest("disk swap"))
        assert (scene.holder, note.requester, note.until) == ("root", "root", "")
        assert scene.shown() == {
            "id": note.id,
            "state": "under way",
            "requester": "root",
            "reason": "disk swap",
            "since": note.began,
            "until": "",
            "drain": False,
            "drained": "",
            "power_off": False,
            "message": "",
        }
        assert status_to_dict(scene.report.status, daemon="running")["lease"]["operation"] == "maintenance"
        assert "disk swap" in await refused(scene.coordination.acquire(update("u1")), "LeaseHeld")
        await keeper.stop("jane")
        assert (scene.holder, scene.note, scene.shown(), scene.freed) == ("", None, None, 1)
        assert scene.events[-1].message == "over: stopped by jane"
        await refused(keeper.stop("jane"), "NoMaintenance")
        await scene.coordination.acquire(update("u1"))


async def test_a_request_on_behalf_of_another_user(scene: Scene) -> None:
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("disk swap", "jane@example.com"))
        assert scene.holder == "jane@example.com (by root)"
        message = await refused(keeper.start("root", MaintenanceRequest("mine now")), "LeaseHeld")
        assert "jane@example.com (by root) holds the lease" in message
        assert "disk swap" in message


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (MaintenanceRequest(" "), "NoReason"),
        (MaintenanceRequest("x", seconds=-1), "BadDuration"),
        (MaintenanceRequest("x", seconds=1e9), "BadDuration"),
        (MaintenanceRequest("one\ntwo"), "BadText"),
        (MaintenanceRequest("x", "y" * 501), "BadText"),
    ],
)
async def test_an_invalid_request_is_refused(scene: Scene, asked: MaintenanceRequest, reason: str) -> None:
    async with scene.life() as keeper:
        with pytest.raises(InvalidInput) as caught:
            await keeper.start("root", asked)
        assert (caught.value.reason, scene.note) == (reason, None)


@pytest.mark.finding("store: writes that fail", "A maintenance that the store does not take leaves nothing in memory.")
async def test_a_full_store_leaves_no_maintenance(scene: Scene) -> None:
    async with scene.life() as keeper:
        scene.full = Terminal("no space left", reason=Reason.NO_SPACE)
        await refused(keeper.start("root", MaintenanceRequest("disk swap")), "NoSpace")
        assert (scene.shown(), scene.events) == (None, [])
        await scene.coordination.acquire(update("u1"))
        await scene.coordination.lease.release("u1")
        scene.full = None
        await keeper.start("root", MaintenanceRequest("disk swap", seconds=60))
        held = scene.shown()
        scene.full = Terminal("no space left", reason=Reason.NO_SPACE)
        await refused(keeper.start("root", MaintenanceRequest("disk swap", seconds=3600)), "NoSpace")
        await refused(keeper.stop("root"), "NoSpace")
        assert scene.shown() == held
        await asyncio.sleep(300)  # its time is over, and that cannot be noted either
        assert scene.holder == "root"
        scene.full = None
        await asyncio.sleep(60)
        assert (scene.holder, scene.shown(), scene.note) == ("", None, None)


async def test_no_drain_without_a_cluster(scene: Scene) -> None:
    async with scene.life(cluster=False) as keeper:
        await refused(keeper.start("root", MaintenanceRequest("x", drain=True)), "NoCluster")
        assert scene.note is None


async def test_an_update_in_progress_refuses_a_maintenance(scene: Scene) -> None:
    scene.world.holder = UPDATE
    async with scene.life() as keeper:
        assert "update to worker-2" in await refused(keeper.start("root", MaintenanceRequest("disk swap")), "LeaseHeld")
        assert (scene.note, scene.shown(), scene.world.holder) == (None, None, UPDATE)
        await scene.coordination.acquire(update("u1", "update to worker-2"))


async def test_a_waiting_maintenance_begins_before_the_next_update(scene: Scene) -> None:
    scene.world.holder = UPDATE
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("disk swap", wait=True))
        assert scene.state == "planned"
        assert "update to worker-2" in str((scene.shown() or {})["message"])
        await asyncio.sleep(100)
    async with scene.life():
        assert scene.state == "planned", "a restart keeps it"
        scene.world.holder = None
        assert "disk swap" in await refused(scene.coordination.acquire(update("u2")), "LeaseHeld")
        await asyncio.sleep(20)
        assert (scene.state, scene.holder, (scene.shown() or {})["message"]) == ("under way", "root", "")


@pytest.mark.parametrize(("random", "pause"), [(0.0, 15.0), (1.0, 18.0)])
async def test_hosts_that_wait_for_the_same_do_not_ask_at_one_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, random: float, pause: float
) -> None:
    scene.world.holder = UPDATE
    asked: list[float] = []
    acquire = Lease.acquire

    async def noted(self: Lease, holder: str, operation: str, reason: str) -> None:
        asked.append(asyncio.get_running_loop().time())
        await acquire(self, holder, operation, reason)

    monkeypatch.setattr(Lease, "acquire", noted)
    async with scene.life() as keeper:
        keeper.random = lambda: random
        await keeper.start("root", MaintenanceRequest("disk swap", wait=True))
        await asyncio.sleep(100)
        await keeper.stop("root")
    pauses = [round(later - earlier, 3) for earlier, later in itertools.pairwise(asked)]
    assert len(pauses) >= 5
    assert set(pauses) == {pause}


async def test_a_waiting_maintenance_is_cancelled(scene: Scene) -> None:
    scene.world.holder = UPDATE
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("disk swap", wait=True))
        await keeper.stop("root")
        assert (scene.note, scene.shown(), scene.world.holder) == (None, None, UPDATE)


async def test_a_maintenance_ends_at_its_time(scene: Scene) -> None:
    async with scene.life() as keeper:
        note = await keeper.start("root", MaintenanceRequest("disk swap", seconds=7200))
        assert note.until == add_seconds(note.since, 7200)
        assert scene.world.holder is not None
        assert scene.world.holder.expires == "in 7200 s"
        await asyncio.sleep(7100)
        assert scene.state == "under way"
        again = await keeper.start("root", MaintenanceRequest("more", seconds=600))
        assert (again.id, again.reason) == (note.id, "disk swap")
        await asyncio.sleep(1)
        assert scene.world.holder.expires == "in 600 s"
        await asyncio.sleep(589)
        assert scene.state == "under way"
        await asyncio.sleep(11)
        assert (scene.shown(), scene.holder, scene.freed) == (None, "", 1)


async def test_through_restarts_and_reboots(scene: Scene) -> None:
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("disk swap"))
    scene.world.power_cut()
    async with scene.life() as keeper:
        await asyncio.sleep(1000)
        assert (scene.state, scene.holder) == ("under way", "root")
        await keeper.stop("root")


async def test_a_lease_of_a_maintenance_of_which_nothing_is_stored(scene: Scene) -> None:
    scene.world.holder = Holder("alice", "maintenance.damaged", "disk swap", "2026-01-01T00:00:00.000Z")
    async with scene.life() as keeper:
        assert (scene.state, (scene.shown() or {})["requester"]) == ("under way", "alice")
        await keeper.stop("root")
        assert scene.holder == ""


async def test_a_lease_that_was_taken_away_ends_it(scene: Scene) -> None:
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("disk swap", drain=True))
        await asyncio.sleep(30)
        cordoned = scene.node.cordoned
        assert cordoned
        scene.world.holder = Holder("node-maintenance", "", "", "now")
        await asyncio.sleep(100)
        assert (scene.state, scene.node.cordoned) == ("ending", cordoned), (
            "it may be the cordon that the other one uses"
        )
        message = await refused(keeper.stop("root"), "MaintenanceEnding")
        assert "node-maintenance holds the lease" in message
        await refused(keeper.start("root", MaintenanceRequest("again")), "MaintenanceEnding")
        scene.world.holder = None
        await asyncio.sleep(20)
        assert (scene.shown(), scene.node.cordoned, scene.freed) == (None, "", 1)


async def test_an_outage_of_the_server_ends_no_maintenance(scene: Scene) -> None:
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("disk swap"))
        scene.lease.away = Unreachable("no answer", reason=Reason.KUBE_UNREACHABLE)
        await asyncio.sleep(1000)
        assert (scene.state, (scene.shown() or {})["message"]) == ("under way", "KubeUnreachable: no answer")
        await refused(scene.coordination.acquire(update("u1")), "LeaseHeld")
        await refused(keeper.stop("root"), "MaintenanceEnding")
        scene.lease.away = None
        await asyncio.sleep(20)
        assert (scene.shown(), scene.holder) == (None, "")


async def test_a_server_that_is_away_at_the_start(scene: Scene) -> None:
    async with scene.life() as keeper:
        scene.lease.away = Unreachable("no answer", reason=Reason.KUBE_UNREACHABLE)
        await refused(keeper.start("root", MaintenanceRequest("disk swap")), "KubeUnreachable")
        assert scene.state == "ending", "it may have been written all the same"
        scene.lease.away = None
        await asyncio.sleep(20)
        assert scene.note is None


async def test_drained_and_uncordoned(scene: Scene) -> None:
    async with scene.life() as keeper:
        note = await keeper.start("root", MaintenanceRequest("disk swap", drain=True))
        assert scene.state == "draining"
        await asyncio.sleep(6)
        assert (scene.state, scene.node.cordoned) == ("under way", note.operation)
        await keeper.stop("root")
        assert scene.node.cordoned == ""


async def test_the_machine_is_protected_during_a_maintenance(scene: Scene) -> None:
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("disk swap"))
        assert scene.gates.held
        await keeper.stop("root")
        assert not scene.gates.held
        scene.gates.leaving = True
        await refused(keeper.start("root", MaintenanceRequest("disk swap")), "NodeLeaving")
        assert (scene.note, scene.holder) == (None, "")


async def test_a_deleted_node_ends_the_maintenance(scene: Scene) -> None:
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("disk swap", drain=True))
        await asyncio.sleep(10)
        scene.node.gone = True
        scene.world.holder = None
        await asyncio.sleep(100)
        assert (scene.note, scene.freed) == (None, 1)


async def test_a_drain_is_stopped(scene: Scene) -> None:
    async with scene.life() as keeper:
        scene.node.seconds = 3000
        await keeper.start("root", MaintenanceRequest("disk swap", drain=True))
        await asyncio.sleep(100)
        await keeper.stop("root")
        assert (scene.shown(), scene.node.cordoned, scene.holder) == (None, "", "")


async def test_a_failed_drain_waits_for_an_operator(scene: Scene) -> None:
    async with scene.life() as keeper:
        scene.node.error = Refused("shop/web-0 is there", reason=Reason.DRAIN_TIMED_OUT)
        await keeper.start("root", MaintenanceRequest("disk swap", drain=True, power_off=True))
        await asyncio.sleep(5000)
        assert (scene.state, (scene.shown() or {})["message"]) == ("under way", "DrainTimedOut: shop/web-0 is there")
        assert "1:power-off" not in scene.world.done, "nothing goes off with its pods"
        scene.node.error = None
        await keeper.start("root", MaintenanceRequest("disk swap", drain=True))
        await asyncio.sleep(10)
        assert ((scene.shown() or {})["drained"] != "", (scene.shown() or {})["message"]) == (True, "")


@pytest.mark.parametrize("drain", [True, False])
async def test_a_maintenance_continues_after_a_power_off(scene: Scene, drain: bool) -> None:
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("new memory", seconds=7200, drain=drain, power_off=True))
        assert scene.world.rebooting is not None
        await scene.world.rebooting.wait()
    assert scene.world.done == ["1:drained", "1:power-off"][0 if drain else 1 :]
    assert scene.world.holder is not None
    assert float(scene.world.holder.expires.split()[1]) == pytest.approx(7200, abs=10)
    async with scene.life() as keeper:
        await asyncio.sleep(1000)
        assert (scene.state, scene.world.boot, scene.holder) == ("under way", 2, "root")
        assert bool(scene.node.cordoned) == drain
        await keeper.stop("root")
    assert (scene.holder, scene.node.cordoned) == ("", "")


async def test_a_second_request_powers_off_again(scene: Scene) -> None:
    for boot in (1, 2):
        async with scene.life() as keeper:
            await asyncio.sleep(1000)
            assert len(scene.world.done) == boot - 1
            await keeper.start("root", MaintenanceRequest("new memory", power_off=True))
            assert scene.world.rebooting is not None
            await scene.world.rebooting.wait()
    assert scene.world.done == ["1:power-off", "2:power-off"]


async def test_off_until_released(scene: Scene) -> None:
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("new memory", power_off=True))
        assert scene.world.rebooting is not None
        await scene.world.rebooting.wait()
    assert scene.world.holder is not None
    assert scene.world.holder.expires == ""


async def test_a_host_that_boots_after_the_end(scene: Scene) -> None:
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("new memory", seconds=600, power_off=True))
        assert scene.world.rebooting is not None
        await scene.world.rebooting.wait()
    await asyncio.sleep(1000)
    async with scene.life():
        await asyncio.sleep(1)
        assert (scene.shown(), scene.holder) == (None, "")


@pytest.mark.finding("leases: lost while users are warned", "The same for a power-off of a maintenance.")
@pytest.mark.parametrize("warn", [3600.0, 4.0])
async def test_a_lease_that_is_lost_while_users_are_warned_stops_the_power_off(warn: float) -> None:
    scene = Scene(limits=replace(LIMITS, warn_users=warn))
    scene.world.logged_in = True
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("new memory", power_off=True))
        while not scene.world.warned:
            await asyncio.sleep(1)
        scene.world.holder = None
        await asyncio.sleep(60)
        assert scene.note is None
    assert scene.world.done == []


async def test_a_power_off_waits_for_inhibitors(scene: Scene) -> None:
    scene.world.blockers = [Inhibitor("backup", "nightly", "backup[7]")]
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("new memory", power_off=True))
        await asyncio.sleep(60)
        assert (scene.state, (scene.shown() or {})["message"]) == (
            "powering off",
            "the power-off waits until 2026-01-01T00:02:00Z for backup (backup[7]): nightly; then it is overridden",
        )
        assert scene.world.done == []
        scene.world.blockers = []
        assert scene.world.rebooting is not None
        await scene.world.rebooting.wait()


async def test_a_power_off_that_waits_is_stopped(scene: Scene) -> None:
    scene.world.blockers = [Inhibitor("backup", "nightly", "backup[7]")]
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("new memory", power_off=True))
        await asyncio.sleep(10)
        await keeper.stop("root")
        scene.world.blockers = []
        await asyncio.sleep(1000)
        assert (scene.world.done, scene.shown()) == ([], None)


async def test_no_power_off_while_another_actor_or_etcd_refuses(scene: Scene) -> None:
    async with scene.life() as keeper:
        for gate, reason in ((scene.gates, "DrainedByOther"), (scene.guard, "EtcdQuorumAtRisk")):
            gate.refusal = Refused("not now", reason=reason)
            await keeper.start("root", MaintenanceRequest("new memory", drain=True, power_off=True))
            await asyncio.sleep(100)
            assert (scene.world.done, (scene.shown() or {})["message"]) == ([], f"{reason}: not now")
            assert scene.node.cordoned == "", "before the cordon"
            gate.refusal = None
        assert scene.world.rebooting is not None
        await scene.world.rebooting.wait()
        assert scene.world.done == ["1:drained", "1:power-off"]


@pytest.mark.parametrize("power_off", [True, False])
@pytest.mark.parametrize("drain", [True, False])
async def test_a_maintenance_that_stops_pods_waits_until_they_may_stop(
    scene: Scene, drain: bool, power_off: bool
) -> None:
    request = MaintenanceRequest("new memory", drain=drain, power_off=power_off)
    async with scene.life() as keeper:
        scene.guard.busy = Refused("a build runs", reason=Reason.REFUSED)
        await keeper.start("root", request)
        await asyncio.sleep(100)
        if not (drain or power_off):
            assert (scene.state, scene.guard.asked) == ("under way", [])
            return
        assert (scene.shown() or {})["message"] == "Refused: a build runs"
        assert (scene.world.done, scene.node.cordoned, scene.holder) == ([], "", "root")
    async with scene.life():
        await asyncio.sleep(100)
        assert scene.guard.asked[-1] == ("new memory", {})
        scene.guard.busy = None
        await asyncio.sleep(30)
        # Once the drain has begun, a pod holds nothing any more.
        scene.guard.busy = Refused("another build runs", reason=Reason.REFUSED)
        await asyncio.sleep(1000)
        wanted = [*(["1:drained"] if drain else []), *(["1:power-off"] if power_off else [])]
        assert scene.world.done == wanted


async def test_a_host_that_does_not_go_off(scene: Scene) -> None:
    scene.world.faults.append(Fault("ignored reboot", times=None))
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("new memory", power_off=True))
        await asyncio.sleep(1000)
        assert (scene.state, scene.holder) == ("under way", "root")
        assert str((scene.shown() or {})["message"]).startswith("PowerOffFailed: ")


@pytest.mark.parametrize("fuse", range(1, 40))
async def test_killed_at_every_call(fuse: int) -> None:
    """Whenever it dies, the next lives drain, power off once, hold the lease until the end, and give all of it back."""
    scene = Scene()
    scene.world.fuse = fuse
    ended = False
    for life in range(12):
        keeper = scene.build()
        try:
            await keeper.load()
        except Killed:
            continue
        running = asyncio.create_task(keeper.run())
        rebooting = scene.world.rebooting
        assert rebooting is not None
        down = asyncio.create_task(rebooting.wait())
        try:
            if life == 0:
                asked = asyncio.create_task(keeper.start("root", MaintenanceRequest("memory", "jane", 600, True, True)))
                await asyncio.wait({asked, running}, return_when=asyncio.FIRST_COMPLETED)
                asked.cancel()
                (answer,) = await asyncio.gather(asked, return_exceptions=True)
                if isinstance(answer, Killed):
                    continue
            await asyncio.wait({running, down}, timeout=700, return_when=asyncio.FIRST_COMPLETED)
            ended = not running.done() and not down.done()
        finally:
            for task in (running, down):
                task.cancel()
            await asyncio.gather(running, down, return_exceptions=True)
        if ended:
            break
    assert ended
    assert (scene.note, scene.holder, scene.node.cordoned) == (None, "", "")
    assert [entry.partition(":")[2] for entry in scene.world.done].count("power-off") <= 1


def test_a_stored_maintenance_is_checked() -> None:
    note = Maintenance("a", "root", "x", "2026-01-01T00:00:00.000Z", drain=True)
    assert from_text(json.dumps({**asdict(note), "of a newer agent": 1})) == note
    for bad in ({"drain": "yes"}, {"tries": "1"}, {"since": "2026-01-01T00:00:00"}):
        with pytest.raises(Terminal, match=r"Expected|no zone"):
            from_text(json.dumps({**asdict(note), **bad}))
    with pytest.raises(Terminal, match="missing required"):
        from_text('{"id": "a"}')


def test_only_maintenance_events_change_what_is_shown() -> None:
    report = Report(Status())
    note = Maintenance("a", "root", "x", "t", began="t")
    report.emit(MaintenanceChanged(note, message="begun"))
    report.emit(Warned(UpdateContext(report.status.phase), "something"))
    assert report.status.part(MaintenanceStatus) == MaintenanceStatus(note)
    assert report.status.without_part(MaintenanceStatus) == Status()


class Absent(Outage):
    """logind does not answer; systemd takes the host down without it."""

    away = True

    async def around(self, service: str, call: str, work: Callable[[], Awaitable[Any]], **options: Any) -> Any:
        if self.away and not options.get("direct"):
            await asyncio.sleep(25)
            raise ServiceUnavailable("no answer within 25 s", reason=Reason.BUS_TIMEOUT, service=service)
        return await work()


def without_logind(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Absent:
    async def never(_service: str) -> AgentError:
        raise AssertionError

    scene.world.outage = outage = Absent(never)
    power = FakePower(scene.world)
    monkeypatch.setattr(f"{__name__}.FakePower", lambda world: LocalService(power, world, "systemd-logind"))
    return outage


async def test_a_power_off_waits_for_logind(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    logind = without_logind(scene, monkeypatch)
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("new memory", power_off=True))
        await asyncio.sleep(600)
        assert "BusTimeout" in str((scene.shown() or {})["message"])
        assert (scene.state, scene.holder, scene.world.done) == ("powering off", "root", [])
        logind.away = False
        assert scene.world.rebooting is not None
        await asyncio.wait_for(scene.world.rebooting.wait(), 100)
    assert scene.world.done == ["1:power-off"]


@pytest.mark.finding(
    "services: away for a while",
    "A host whose logind is away is not a host that cannot reboot; after half an hour it reboots without logind.",
)
async def test_a_power_off_without_logind(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    without_logind(scene, monkeypatch)
    async with scene.life() as keeper:
        await keeper.start("root", MaintenanceRequest("new memory", power_off=True))
        assert scene.world.rebooting is not None
        await asyncio.wait_for(scene.world.rebooting.wait(), 2 * scene.limits.service_wait)
    assert scene.world.done == ["1:power-off"]
