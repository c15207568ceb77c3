"""Telling the cluster: behind the back of what happens, whatever the cluster says to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from nodeagent.agent.report.kubernetes import QUEUE, WORDS_EVERY, Teller
from nodeagent.agent.report.report import Report
from nodeagent.core.coordination.drain import Cause, Remaining
from nodeagent.core.report.conditions import NodeState
from nodeagent.core.report.node_events import Notice
from nodeagent.core.report.status import Status
from nodeagent.core.update.events import Event, EventKind
from nodeagent.core.update.phase import Phase
from nodeagent.errors import AgentError, Refused, Terminal, Unreachable
from nodeagent.reasons import Reason

pytestmark = pytest.mark.looptime


class Clock:
    def now(self) -> str:
        raise AssertionError

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


@dataclass
class Cluster:
    states: list[NodeState] = field(default_factory=list)
    notices: list[tuple[str, float]] = field(default_factory=list)
    error: AgentError | None = None
    tries: int = 0

    async def tell(self, state: NodeState) -> None:
        self._answer()
        self.states.append(state)

    async def write(self, notice: Notice, at: float) -> None:
        self._answer()
        self.notices.append((notice.reason, at))

    def _answer(self) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@contextlib.asynccontextmanager
async def telling(cluster: Cluster) -> AsyncIterator[Report]:
    """No fixture: the clock of the test is not theirs."""
    report = Report(Status())
    teller = Teller(cluster, cluster, Clock(), lambda: 0.5)
    report.add(teller.sink)
    teller.begin(report.status)
    running = asyncio.create_task(teller.run())
    yield report
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def phase(report: Report, phase: Phase) -> None:
    report.emit(Event(EventKind.PHASE, phase, desired="worker-2"))


def waiting(report: Report, text: str) -> None:
    report.emit(Event(EventKind.WAITING, Phase.LEASING, text, "LeaseHeld"))


async def test_the_conditions_are_told_at_the_start_and_when_they_change(cluster: Cluster) -> None:
    async with telling(cluster) as report:
        await asyncio.sleep(10)
        assert cluster.states == [NodeState()], "another process of ours may have left something there"
        phase(report, Phase.LEASING)
        phase(report, Phase.WRITING)
        await asyncio.sleep(10)
        assert len(cluster.states) == 1, "what passes at once is not worth a write"
        phase(report, Phase.DRAINING)
        await asyncio.sleep(3)
        assert cluster.states[-1].draining
        assert cluster.notices == [("DrainRequested", pytest.approx(20, abs=0.1))]


async def test_words_alone_are_not_written_at_every_look(cluster: Cluster) -> None:
    async with telling(cluster) as report:
        phase(report, Phase.DRAINING)
        for number in range(60):
            pods = [Remaining("shop", f"web-{number}", Cause.REQUESTED)]
            report.emit(Event(EventKind.DRAIN, Phase.DRAINING, fields={"remaining": pods}))
            await asyncio.sleep(3)
        await asyncio.sleep(2 * WORDS_EVERY)
        assert cluster.states[-1].remaining[0].name == "web-59", "the last words are told, though nothing followed them"
        assert 180 / WORDS_EVERY - 3 <= len(cluster.states) <= 180 / WORDS_EVERY + 3


async def test_a_cluster_that_is_away_is_told_later_what_was_when(cluster: Cluster) -> None:
    async with telling(cluster) as report:
        await asyncio.sleep(5)
        cluster.error = Unreachable("no answer", reason=Reason.KUBE_UNREACHABLE)
        phase(report, Phase.DRAINING)
        await asyncio.sleep(60)
        for _ in range(3):
            waiting(report, "first")
        await asyncio.sleep(3600)
        assert 10 < cluster.tries < 60
        assert cluster.notices == []
        cluster.error = None
        await asyncio.sleep(130)
        assert [(reason, round(at)) for reason, at in cluster.notices] == [("DrainRequested", 5), ("UpdateWaiting", 65)]
        assert cluster.states[-1].requester == "nodeagent"


async def test_the_queue_has_an_end(cluster: Cluster) -> None:
    async with telling(cluster) as report:
        cluster.error = Unreachable("no answer", reason=Reason.KUBE_UNREACHABLE)
        for number in range(QUEUE + 50):
            waiting(report, str(number))
            waiting(report, str(number))
        cluster.error = None
        await asyncio.sleep(130)
        assert len(cluster.notices) == QUEUE + 1
        assert cluster.notices[0][0] == "NoticesDropped"


@pytest.mark.parametrize("kind", [Refused, Terminal])
async def test_what_it_may_not_write_is_complained_of_once(
    cluster: Cluster, kind: type[AgentError], capsys: Any
) -> None:
    async with telling(cluster) as report:
        cluster.error = kind('cannot create resource "events"', reason="KubeForbidden")
        for number in range(5):
            waiting(report, str(number))
            await asyncio.sleep(10)
        assert capsys.readouterr().err.count("the cluster is not told") == 1
        cluster.error = None
        waiting(report, "now")
        await asyncio.sleep(10)
        assert cluster.notices[-1][0] == "UpdateWaiting"
        assert len(cluster.notices) == 1, "what was refused is given up"


async def test_a_host_that_goes_off_says_so_and_waits_for_nobody(cluster: Cluster) -> None:
    async with telling(cluster) as report:
        await asyncio.sleep(10)
        phase(report, Phase.DRAINING)
    assert cluster.states[-1].draining
    assert [reason for reason, _ in cluster.notices] == ["DrainRequested"]
    cluster.error = Unreachable("no answer", reason=Reason.KUBE_UNREACHABLE)
    async with telling(cluster) as report:
        phase(report, Phase.DRAINING)
    assert len(cluster.notices) == 1
