# SPDX-License-Identifier: Apache-2.0
"""`nodeagent apply --at` and the windows of the settings, on the host in memory."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from nodeagent.features.windows.decide.weekly import Schedule, parse_windows
from nodeagent.features.windows.guard import TimeGuard
from nodeagent.features.windows.reasons import WindowReason
from nodeagent.update.history.lasting import Hold
from nodeagent.update.ports.events import UpdateWaiting
from nodeagent.update.ports.store import ApplyRequest
from nodeagent.update.states import Phase
from tests.agent.test_api import api
from tests.update import test_cluster_update as cluster
from tests.update.test_cancel import REBOOTS
from tests.update.test_hold import waits
from tests.update.test_outcomes import outcomes
from tests.update.test_update import B
from tests.update.test_update import started as without_guards
from tests.world import FakeClock
from tests.world.run import Host

pytestmark = pytest.mark.looptime

# The clock of the host counts boots: this is the time of the second one.
SECOND = "2026-01-01T00:00:02.000Z"


class GivenTimes:
    """``windows`` as in ``windows.open``; none: always."""

    def __init__(self, *windows: str) -> None:
        self.windows = windows

    async def zone(self) -> tzinfo:
        return UTC

    async def schedule(self) -> Schedule | None:
        return Schedule(parse_windows(self.windows), UTC) if self.windows else None


async def started() -> Host:
    host = await without_guards()
    host.guards = [TimeGuard(GivenTimes())]
    return host


async def held(host: Host, **options: str) -> asyncio.Task[None]:
    """The update to the desired config waits, as an operator requested."""
    host.world.request = ApplyRequest(host.wanted).held(Hold("", requester="root", options=options))
    task = asyncio.create_task(host.settle())
    while host.phase is not Phase.LEASING:
        await asyncio.sleep(0.1)
    await asyncio.sleep(300)
    assert host.phase is Phase.LEASING
    return task


async def test_an_update_begins_at_its_time_also_after_restarts() -> None:
    host = await started()
    host.want(B)
    task = await held(host, not_before=SECOND)
    why = "the update to b waits until 2026-01-01T00:00:02Z, as requested by root"
    assert waits(host) == [(WindowReason.SCHEDULED, why)], "once"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    again = asyncio.create_task(host.settle())
    await asyncio.sleep(300)
    assert host.phase is Phase.LEASING, "a restart of the daemon does not forget it"
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)
    host.world.power_cut()
    await host.settle()
    assert (host.phase, outcomes(host)[-1]) == (Phase.IDLE, ("b", "done", 0))
    assert host.record.lasting.hold is None


async def test_an_update_begins_at_its_time_and_not_minutes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, began = asyncio.get_running_loop().time, asyncio.get_running_loop().time()
    midnight = datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(FakeClock, "now", lambda _: (midnight + timedelta(seconds=clock() - began)).isoformat())
    host = await started()
    host.want(B)
    task = await held(host, not_before=(midnight + timedelta(seconds=10_000)).isoformat())
    await asyncio.sleep(9_999 - (clock() - began))
    assert host.phase is Phase.LEASING
    await asyncio.sleep(2)
    assert host.phase is not Phase.LEASING
    await task
    assert outcomes(host)[-1] == ("b", "done", 0)


async def test_a_newer_request_for_the_same_config_replaces_the_time() -> None:
    host = await started()
    host.want(B)
    task = await held(host, not_before=SECOND)
    assert host.loop is not None
    async with host.loop.recorded(ApplyRequest(host.wanted)):
        pass
    await task
    assert outcomes(host)[-1] == ("b", "done", 0)


async def test_another_config_is_not_delayed() -> None:
    host = await started()
    host.want(REBOOTS)
    task = await held(host, not_before=SECOND)
    host.want(B)
    await task
    assert outcomes(host)[-2:] == [("b", "superseded", 4), ("b", "done", 0)]


async def test_a_time_may_be_planned_again_while_it_waits() -> None:
    host = await started()
    host.want(B)
    task = await held(host, not_before=SECOND)
    assert host.loop is not None
    asked = api(host, Phase.LEASING, loop=host.loop)
    assert json.loads(await asked.plan(host.wanted))["to"] == "b"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_requested_window_is_waited_for() -> None:
    """The clock of this world stands at 00:00:01 on a Thursday."""
    host = await started()
    host.want(B)
    task = await held(host, window="fri 00:00 60")
    why = "the update to b waits until 2026-01-02T00:00:00Z, as requested by root"
    assert waits(host) == [(WindowReason.SCHEDULED, why)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_time_comes_before_a_reboot_that_is_held_back() -> None:
    host = await started()
    host.want(REBOOTS)
    hold = Hold("", no_reboot=True, requester="root", options={"not_before": SECOND})
    host.world.request = ApplyRequest(host.wanted).held(hold)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(300)
    assert [reason for reason, _ in waits(host)] == ["Scheduled"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_window_is_waited_for_and_its_closing_interrupts_nothing() -> None:
    """The clock of this world stands at 00:00:01 on a Thursday."""
    times = GivenTimes("fri 00:00 60")
    host = await cluster.at_old()
    host.guards = [TimeGuard(times)]
    host.want(cluster.REBOOT)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(600)
    assert cluster.waited_for(host) == ["WindowClosed"]
    assert "opens 2026-01-02T00:00:00Z" in host.record.message or any(
        "opens 2026-01-02T00:00:00Z" in event.message for event in host.world.events if isinstance(event, UpdateWaiting)
    )
    assert host.around.slot == ""
    times.windows = ("thu 00:00 60",)
    host.around.stuck = True
    await cluster.until(lambda: host.phase is Phase.DRAINING)
    times.windows = ("fri 00:00 60",)
    await asyncio.sleep(60)
    host.around.stuck = False
    await task
    assert (host.phase, host.around.killed) == (Phase.IDLE, [])
