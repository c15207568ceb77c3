# SPDX-License-Identifier: Apache-2.0
"""`nodeagent apply --at` and the windows of the settings, on the host in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from nodeagent.errors import InvalidInput
from nodeagent.features.windows.decide.estimate import Estimate, Work, estimate
from nodeagent.features.windows.decide.freeze import parse_freezes
from nodeagent.features.windows.decide.openings import Openings
from nodeagent.features.windows.decide.schedule import Opening, Schedule
from nodeagent.features.windows.decide.turn import MOST_SEARCHED, Obstacle, Terms, share_of
from nodeagent.features.windows.decide.window import parse_windows
from nodeagent.features.windows.guard import TimeGuard
from nodeagent.features.windows.reasons import WindowReason
from nodeagent.features.windows.times import Times
from nodeagent.update.history.lasting import Hold
from nodeagent.update.history.trail import Boot, Span, Trail, trail_to_dict
from nodeagent.update.ports.events import UpdateWaiting, Warned
from nodeagent.update.ports.store import ApplyRequest, HistoryEntry
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
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = "2026-01-01T00:00:02.000Z"


EVERYONE = Terms()


class GivenTimes(Times):
    """``windows`` as in ``windows.open``, ``freezes`` as in ``windows.freeze``; none: always."""

    def __init__(self, *windows: str, freezes: Sequence[str] = (), terms: Terms = EVERYONE) -> None:
        self.windows, self.freezes, self.terms = windows, freezes, terms

    def now(self) -> datetime:
        return NEW_YEAR

    async def openings(self) -> Openings | None:
        if not (self.windows or self.freezes):
            return None
        schedule = Schedule(parse_windows(self.windows), UTC) if self.windows else None
        return Openings(schedule, tuple(sorted(freeze.span(UTC) for freeze in parse_freezes(self.freezes))))


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


@pytest.fixture
def elapsed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """The wall clock of the host goes with the loop, from new year on. Returns the seconds since then."""
    began: list[float] = []

    def seconds() -> float:
        # The loop of the test begins with its own time.
        now = asyncio.get_running_loop().time()
        began.append(now)
        return now - began[0]

    monkeypatch.setattr(
        FakeClock, "now", lambda _: (NEW_YEAR + timedelta(seconds=seconds())).isoformat(timespec="milliseconds")
    )
    return seconds


async def test_an_update_begins_at_its_time_and_not_minutes_later(elapsed: Callable[[], float]) -> None:
    host = await started()
    host.want(B)
    task = await held(host, not_before=(NEW_YEAR + timedelta(seconds=10_000)).isoformat())
    await asyncio.sleep(9_999 - elapsed())
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


async def begun(host: Host, at: datetime, elapsed: Callable[[], float]) -> None:
    """The update that waits begins at that time, and not before."""
    await asyncio.sleep((at - NEW_YEAR).total_seconds() - elapsed() - 2)
    assert host.phase is Phase.LEASING
    await asyncio.sleep(4)
    assert host.phase is not Phase.LEASING


async def test_a_freeze_is_waited_out(elapsed: Callable[[], float]) -> None:
    host = await started()
    host.guards = [TimeGuard(GivenTimes("02:00 60", freezes=["fair = 2026-01-01..2026-01-01T02:30"]))]
    host.want(B)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(60)
    message = "updates are frozen until 2026-01-01T02:30:00Z (fair); it begins at 2026-01-01T02:30:00Z"
    assert waits(host) == [(WindowReason.FROZEN, message)]
    await begun(host, datetime(2026, 1, 1, 2, 30, tzinfo=UTC), elapsed)
    await task
    assert outcomes(host)[-1] == ("b", "done", 0)


@pytest.mark.parametrize("times", [GivenTimes("fri 00:00 60"), GivenTimes(freezes=["2026-01-01"])])
async def test_an_operator_begins_an_update_at_any_time(times: GivenTimes) -> None:
    host = await started()
    host.guards = [TimeGuard(times)]
    host.want(B)
    task = await held(host)
    assert host.loop is not None
    async with host.loop.recorded(ApplyRequest(host.wanted, options={"any_time": "yes"})):
        pass
    await task
    assert outcomes(host)[-1] == ("b", "done", 0)
    # The next one waits again.
    host.want(REBOOTS)
    task = await held(host)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_closed_window_does_not_begin_for_a_request_of_a_later_time(elapsed: Callable[[], float]) -> None:
    host = await started()
    host.guards = [TimeGuard(GivenTimes("02:00 60"))]
    host.want(B)
    task = await held(host, not_before="2026-01-01T01:00:00Z")
    await asyncio.sleep(3600)
    assert [reason for reason, _ in waits(host)] == [WindowReason.SCHEDULED, WindowReason.WINDOW_CLOSED]
    await begun(host, datetime(2026, 1, 1, 2, tzinfo=UTC), elapsed)
    await task


async def test_hosts_of_a_fleet_begin_at_different_times(elapsed: Callable[[], float]) -> None:
    host = await started()
    host.guards = [TimeGuard(GivenTimes("00:00 120", terms=Terms(timedelta(minutes=60), 0.75)))]
    host.want(B)
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(600)
    message = "the hosts are spread over the window; it begins at 2026-01-01T00:45:00Z"
    assert waits(host) == [(WindowReason.WINDOW_SPREAD, message)]
    await begun(host, datetime(2026, 1, 1, 0, 45, tzinfo=UTC), elapsed)
    await task


def slow_update(minutes: int) -> HistoryEntry:
    course = Trail((Boot("b", 0, minutes * 60 + 10, 1e9),), (Span("Leasing", "", 0, 0), Span("Acting", "", 0, 10)))
    times = ("2025-12-01T00:00:00Z", "2025-12-01T01:00:00Z")
    return HistoryEntry("u", "a", "b", *times, "done", "restart", trail=trail_to_dict(course))


class PastTimes(GivenTimes):
    """Estimates from the history of ``host``."""

    def __init__(self, host: Host, windows: Sequence[str], terms: Terms) -> None:
        super().__init__(*windows, terms=terms)
        self.host = host

    async def estimate(self, work: Work) -> Estimate:
        return estimate(self.host.world.history, work)


async def host_with(windows: Sequence[str], terms: Terms, minutes: int) -> Host:
    """The last update of this host took that long."""
    host = await without_guards()
    host.world.history[:] = [slow_update(minutes)]
    host.guards = [TimeGuard(PastTimes(host, windows, terms))]
    host.want(B)
    return host


async def test_nothing_begins_that_would_end_after_the_window(elapsed: Callable[[], float]) -> None:
    host = await host_with(["00:00 60", "02:00 60"], Terms(end_inside=True), 40)
    await asyncio.sleep(1800 - elapsed())
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(600)
    ((reason, message),) = waits(host)
    assert reason == WindowReason.WINDOW_TOO_SHORT
    assert message == (
        "it will not end before the window closes: similar updates took 40 min, 50 min with a margin, "
        "30 min are left; it begins at 2026-01-01T02:00:00Z"
    )
    await begun(host, datetime(2026, 1, 1, 2, tzinfo=UTC), elapsed)
    await task
    assert outcomes(host)[-1] == ("b", "done", 0)


async def test_an_update_that_is_too_long_for_each_window_begins_at_the_start_of_one(
    elapsed: Callable[[], float],
) -> None:
    host = await host_with(["00:00 30", "02:00 30"], Terms(end_inside=True), 40)
    await asyncio.sleep(1200 - elapsed())
    task = asyncio.create_task(host.settle())
    await asyncio.sleep(300)
    assert [reason for reason, _ in waits(host)] == [WindowReason.WINDOW_TOO_SHORT]
    await begun(host, datetime(2026, 1, 1, 2, tzinfo=UTC), elapsed)
    await task
    warned = [event.message for event in host.world.events if isinstance(event, Warned)]
    note = "continuing: no window is long enough, so it begins at the start of one: "
    assert warned == [note + "similar updates took 40 min, 50 min with a margin"]
    assert outcomes(host)[-1] == ("b", "done", 0)


async def test_an_update_that_fits_in_no_window_searches_them_once_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[datetime] = []
    opening = Schedule.opening

    def counted(self: Schedule, at: datetime) -> Opening | None:
        searched.append(at)
        return opening(self, at)

    monkeypatch.setattr(Schedule, "opening", counted)
    times = GivenTimes("00:00 30", "02:00 30", terms=Terms(end_inside=True))
    openings, needed = await times.openings(), timedelta(minutes=50)
    assert openings is not None
    now = NEW_YEAR + timedelta(minutes=20)
    found = [await times.turn(openings, needed, now + timedelta(minutes=minute)) for minute in range(60)]
    assert len(searched) <= MOST_SEARCHED + 3 * 60
    assert {turn.begins for turn in found} == {NEW_YEAR + timedelta(hours=2)}
    assert {(turn.fits, turn.obstacle) for turn in found} == {(False, Obstacle.SHORT), (False, Obstacle.CLOSED)}
    # After an hour, and for a shorter update, they are searched again.
    for later, length in ((now + timedelta(hours=1), needed), (now, timedelta(minutes=20))):
        searched.clear()
        turn = await times.turn(openings, length, later)
        assert (turn.fits, len(searched) > 3) == (length < needed, length == needed)


async def test_a_host_that_is_killed_while_it_waits_keeps_its_time(elapsed: Callable[[], float]) -> None:
    """Nothing is stored: settings, id and history give the same time again."""
    host = await host_with(["01:00 120"], Terms(timedelta(minutes=60), share_of("a" * 32), end_inside=True), 10)
    seen = set()
    for _ in range(3):
        task = asyncio.create_task(host.settle())
        await asyncio.sleep(300)
        seen.add(waits(host)[-1])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        host.world.power_cut()
    ((reason, message),) = seen
    assert (reason, message.partition("; ")[0]) == (WindowReason.WINDOW_CLOSED, "no window is open")
    assert ", and this host begins at 2026-01-01T01:" in message


async def test_a_plan_shows_the_time_of_this_host() -> None:
    host = await started()
    host.want(B)
    times = GivenTimes("02:00 120", terms=Terms(timedelta(minutes=60), 0.75))
    host.guards = [TimeGuard(times)]

    async def notes() -> list[str]:
        planned = json.loads(await api(host).plan(host.wanted))["notes"]
        return [note for note in planned if note.startswith("windows:")]

    opens = "the next one opens 2026-01-01T02:00:00Z, and this host begins at 2026-01-01T02:45:00Z"
    assert await notes() == [f"windows: no window is open; {opens}"]
    times.freezes = ["2026-01-01..2026-01-03"]
    frozen = "updates are frozen until 2026-01-04T00:00:00Z; it begins at 2026-01-04T02:45:00Z"
    assert await notes() == [f"windows: {frozen}"]
    times.windows, times.freezes, times.terms = ("00:00 4",), (), Terms(end_inside=True)
    too_long = "no window is long enough, so it begins at the start of one: without a similar update yet"
    assert await notes() == [f"windows: it begins at once; {too_long}, 5 min are expected"]
    times.windows = ()
    assert await notes() == []


async def test_a_time_zone_that_is_gone_closes_the_windows() -> None:
    class NoZone(GivenTimes):
        async def openings(self) -> Openings | None:
            raise InvalidInput("'X' is not a time zone of this host", reason=WindowReason.TIME_ZONE_UNKNOWN)

    host = await started()
    host.guards = [TimeGuard(NoZone())]
    host.want(B)
    planned = json.loads(await api(host).plan(host.wanted))["notes"]
    assert "windows: none is open: 'X' is not a time zone of this host" in planned
    task = await held(host)
    assert [reason for reason, _ in waits(host)] == [WindowReason.WINDOW_CLOSED]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
