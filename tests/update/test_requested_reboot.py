# SPDX-License-Identifier: Apache-2.0
"""A reboot without a change of the config: in its course it is an update, and each request has one boot at most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from nodeagent.core.config.file_tree import RegularFile
from nodeagent.core.config.machineconfig import UnitEntry
from nodeagent.errors import Cause, Refused
from nodeagent.reasons import Reason
from nodeagent.update.course import Cancellation
from nodeagent.update.history.lasting import RequestedReboot
from nodeagent.update.ports.coordination import Holder
from nodeagent.update.ports.events import UpdateFinished
from nodeagent.update.ports.system import Inhibitor
from nodeagent.update.run import Run
from nodeagent.update.stages.guard import Guard, RebootRequests
from nodeagent.update.states import Phase
from tests.world import FakeUnit, World, kill_points
from tests.world.run import LIMITS, Host, config, until

pytestmark = pytest.mark.looptime

SERVICE = UnitEntry("app.service", enabled=True)
OLD = config("old", {"/etc/app/x": "1"}, units=[SERVICE])
FILES = config("files", {"/etc/app/x": "2"}, units=[SERVICE])
OTHER = Holder("other", "op", "disk", "now")
REBOOTING = config("rebooting", {"/etc/app/x": "1", "/etc/unlisted": "2"}, units=[SERVICE])


@dataclass
class Requests(RebootRequests):
    """One request, which a later boot answers, as a feature keeps it."""

    host: Host
    wanted: RequestedReboot | None = None
    boot: int = 0
    causes: list[Cause] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def request(self, **more: Any) -> None:
        self.wanted, self.boot = RequestedReboot("r1", "root", "a new kernel", **more), self.host.world.boot

    def pending(self) -> RequestedReboot | None:
        return self.wanted if self.boot == self.host.world.boot else None

    def waits(self, cause: Cause) -> None:
        self.causes.append(cause)

    async def drop(self, request: str, why: str) -> None:
        if self.wanted is not None and self.wanted.id == request:
            self.wanted = None
            self.dropped.append(why)


@dataclass
class Requested(Guard):
    reboot_requests: RebootRequests | None
    closed: str = ""

    async def may_begin(self, run: Run) -> None:
        if self.closed:
            raise Refused(self.closed)


async def at_old(**more: Any) -> tuple[Host, Requests, Requested]:
    units = {name: FakeUnit() for name in ("app.service", "web.service")}
    units["app.service"].file = "enabled"
    host = Host(World(units=units), **more)
    host.want(OLD)
    await host.settle()
    host.world.done.clear()
    host.world.events.clear()
    host.world.history.clear()
    host.world.calls = 0
    requests = Requests(host)
    guard = Requested(requests)
    host.guards = (guard,)
    return host, requests, guard


def assert_rested(host: Host, boots: int = 1) -> None:
    assert host.phase is Phase.IDLE, host.record
    assert host.world.holder is None
    assert host.configs[host.world.current].name == "old"
    assert host.actions().count("reboot") == boots
    assert host.record.lasting.rejections == ()


async def test_a_request_is_one_reboot_under_the_lease_which_is_verified() -> None:
    host, requests, _ = await at_old()
    requests.request()
    before = host.world.boot
    await host.settle()
    await host.settle()
    assert_rested(host)
    assert host.world.boot == before + 1
    (entry,) = host.world.history
    assert (entry.update_id, entry.outcome, entry.disruption, entry.reboots) == ("r1", "done", "reboot", 1)
    assert (entry.from_name, entry.to_name) == ("old", "old")
    assert "reboot requested by root: a new kernel" in entry.message
    assert host.world.previous == ""


@pytest.mark.parametrize("power", [False, True], ids=["kill -9", "power cut"])
async def test_killed_at_every_point(power: bool) -> None:
    host, requests, _ = await at_old()
    requests.request()
    await host.settle()
    total = host.world.calls
    assert total > 10
    for fuse in kill_points(total, case=power):
        host, requests, _ = await at_old()
        requests.request()
        before = host.world.boot
        await host.kill_at(fuse, power=power)
        await host.settle()
        await host.settle()
        assert host.phase is Phase.IDLE, host.record
        assert host.world.holder is None
        assert requests.pending() is None
        # A power cut is a boot too, and answers the request.
        reboots = [entry for entry in host.world.done if entry.endswith(":reboot")]
        assert reboots in ([], [f"{before}:reboot"])
        assert bool(reboots) or power


async def test_a_unit_that_does_not_come_back_leaves_the_host_degraded_and_nothing_loops() -> None:
    host, requests, _ = await at_old()
    requests.request()
    host.world.units["app.service"].bad_until_boot = 99
    before = host.world.boot
    await host.settle()
    await host.settle()
    assert host.world.boot == before + 1
    assert (host.phase, host.world.history[-1].outcome) == (Phase.DEGRADED, "degraded")
    assert host.world.holder is not None


@pytest.mark.parametrize("at_once", [False, True])
async def test_times_without_updates_hold_only_a_request_that_accepts_them(at_once: bool) -> None:
    host, requests, guard = await at_old()
    guard.closed = "no window is open"
    requests.request(at_once=at_once)
    before = host.world.boot
    await host.settle()
    assert host.world.boot == before + at_once
    assert host.phase is Phase.IDLE
    if not at_once:
        assert [cause.message for cause in requests.causes] == ["no window is open"]
        guard.closed = ""
        await host.settle()
    assert_rested(host)


async def test_settings_without_reboots_hold_it() -> None:
    host, requests, _ = await at_old(limits=LIMITS)
    host.limits = replace(LIMITS, may_reboot=False)
    requests.request(at_once=True)
    await host.settle()
    assert_rested(host, boots=0)
    assert requests.causes[0].reason == Reason.REBOOT_NOT_ALLOWED


async def _beside(host: Host, condition: Callable[[], bool]) -> asyncio.Task[bool]:
    life = asyncio.create_task(host._live())
    async with asyncio.timeout(600):
        while not condition():
            await asyncio.sleep(0.5)
    return life


async def _end(life: asyncio.Task[bool]) -> None:
    life.cancel()
    await asyncio.gather(life, return_exceptions=True)


async def test_an_update_that_waits_lets_an_urgent_request_pass() -> None:
    host, requests, guard = await at_old()
    guard.closed = "no window is open"
    host.want(FILES)
    life = await _beside(host, lambda: host.phase is Phase.LEASING)
    requests.request(at_once=True)
    before = host.world.boot
    assert host.loop is not None
    host.loop.look_again()
    await life
    life = await _beside(host, lambda: host.world.boot > before and host.record.to_name == "files")
    await _end(life)
    assert host.world.boot == before + 1
    guard.closed = ""
    await host.settle()
    assert host.configs[host.world.current].name == "files"
    assert host.actions().count("reboot") == 1


async def test_the_reboot_of_an_update_answers_a_request() -> None:
    host, requests, _ = await at_old()
    host.want(REBOOTING)
    requests.request()
    await host.settle()
    await host.settle()
    assert host.configs[host.world.current].name == "rebooting"
    assert host.actions().count("reboot") == 1
    assert requests.pending() is None


async def test_a_request_follows_an_update_without_a_reboot() -> None:
    host, requests, _ = await at_old()
    host.want(FILES)
    requests.request()
    await host.settle()
    await host.settle()
    assert [entry.to_name for entry in host.world.history] == ["files", "files"]
    assert host.actions().count("reboot") == 1


@pytest.mark.parametrize("phase", [Phase.LEASING, Phase.REBOOTING])
async def test_an_operator_cancels_it(phase: Phase) -> None:
    host, requests, _ = await at_old()
    if phase is Phase.LEASING:
        host.world.holder = OTHER
    else:
        host.world.blockers = [Inhibitor("backup", "nightly", "backup")]
    requests.request(at_once=True)
    life = asyncio.create_task(host._live())
    await until(host, phase)
    assert host.loop is not None

    async def nothing(_digest: str) -> None:
        pass

    cancelled = await host.loop.cancel("root", nothing)
    assert cancelled.reboot.startswith("reboot requested by root")
    assert cancelled.effect is (Cancellation.END if phase is Phase.LEASING else Cancellation.REVERT)
    await life
    await host.settle()
    if phase is Phase.LEASING:
        assert host.world.holder is OTHER
        host.world.holder = None
    assert_rested(host, boots=0)
    ends = [event.entry.outcome for event in host.world.events if isinstance(event, UpdateFinished)]
    assert ends == ["cancelled"]


async def test_a_request_that_has_not_begun_is_cancelled_where_no_update_is() -> None:
    host, requests, guard = await at_old()
    guard.closed = "no window is open"
    requests.request()
    await host.settle()
    assert host.loop is not None

    async def nothing(_digest: str) -> None:
        pass

    cancelled = await host.loop.cancel("root", nothing)
    assert (cancelled.name, bool(cancelled.reboot)) == ("old", True)
    assert requests.dropped == ["cancelled by root"]
    with pytest.raises(Refused):
        await host.loop.cancel("root", nothing)


async def test_drift_does_not_fail_it() -> None:
    host, requests, _ = await at_old()
    host.world.disk["/etc/app/x"] = RegularFile(b"changed by hand")
    requests.request()
    await host.settle()
    assert host.world.history[-1].outcome == "done"
    assert host.actions().count("reboot") == 1
