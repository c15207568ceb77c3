# SPDX-License-Identifier: Apache-2.0
"""Node conditions and Kubernetes Events are written beside the updates, through outages and refusals."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from nodeagent.agent.report.report import Report
from nodeagent.errors import AgentError, Refused, Terminal, Unreachable
from nodeagent.features.cluster.decide.conditions import NodeState
from nodeagent.features.cluster.decide.drain import PodWait, Remaining
from nodeagent.features.cluster.events import DrainAdvanced
from nodeagent.features.cluster.reports import QUEUE, TEXT_EVERY, ClusterReporter
from nodeagent.reasons import Reason
from nodeagent.report.node_events import NodeEvent
from nodeagent.report.status import Status
from nodeagent.update.ports.events import PhaseEntered, UpdateContext, UpdateWaiting
from nodeagent.update.states import Phase

pytestmark = pytest.mark.looptime


class Clock:
    def now(self) -> str:
        raise AssertionError

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


@dataclass
class Cluster:
    states: list[NodeState] = field(default_factory=list)
    events: list[tuple[str, float]] = field(default_factory=list)
    error: AgentError | None = None
    tries: int = 0

    again: float | None = None

    async def publish(self, state: NodeState) -> float | None:
        self._answer()
        self.states.append(state)
        return self.again

    async def write(self, event: NodeEvent, at: float) -> None:
        self._answer()
        self.events.append((event.reason, at))

    def _answer(self) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@contextlib.asynccontextmanager
async def reporting(cluster: Cluster) -> AsyncIterator[Report]:
    """Run a reporter on the clock of the test, which a fixture does not have."""
    report = Report(Status())
    cluster_reporter = ClusterReporter(cluster.publish, cluster.write, Clock(), lambda: 0.5)
    report.add(cluster_reporter.sink)
    cluster_reporter.begin(report.status)
    running = asyncio.create_task(cluster_reporter.run())
    yield report
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def phase(report: Report, phase: Phase) -> None:
    report.emit(PhaseEntered(UpdateContext(phase, desired="worker-2")))


def waiting(report: Report, text: str) -> None:
    report.emit(UpdateWaiting(UpdateContext(Phase.LEASING), text, "LeaseHeld"))


async def test_conditions_are_written_at_the_start_and_when_they_change(cluster: Cluster) -> None:
    async with reporting(cluster) as report:
        await asyncio.sleep(10)
        assert cluster.states == [NodeState()], "the previous process may have left other conditions"
        phase(report, Phase.LEASING)
        phase(report, Phase.WRITING)
        await asyncio.sleep(10)
        assert len(cluster.states) == 1, "a state that ends within a second is not written"
        phase(report, Phase.DRAINING)
        await asyncio.sleep(3)
        assert cluster.states[-1].draining
        assert cluster.events == [("DrainRequested", pytest.approx(20, abs=0.1))]


async def test_messages_alone_are_not_written_at_every_poll(cluster: Cluster) -> None:
    async with reporting(cluster) as report:
        phase(report, Phase.DRAINING)
        for number in range(60):
            pods = [Remaining("shop", f"web-{number}", PodWait.REQUESTED)]
            report.emit(DrainAdvanced(pods))
            await asyncio.sleep(3)
        await asyncio.sleep(2 * TEXT_EVERY)
        assert cluster.states[-1].remaining[0].name == "web-59", "the last message is written without a later event"
        assert 180 / TEXT_EVERY - 3 <= len(cluster.states) <= 180 / TEXT_EVERY + 3


async def test_events_after_an_outage_have_the_time_at_which_they_occurred(cluster: Cluster) -> None:
    async with reporting(cluster) as report:
        await asyncio.sleep(5)
        cluster.error = Unreachable("no answer", reason=Reason.KUBE_UNREACHABLE)
        phase(report, Phase.DRAINING)
        await asyncio.sleep(60)
        for _ in range(3):
            waiting(report, "first")
        await asyncio.sleep(3600)
        assert 10 < cluster.tries < 60
        assert cluster.events == []
        cluster.error = None
        await asyncio.sleep(130)
        assert [(reason, round(at)) for reason, at in cluster.events] == [("DrainRequested", 5), ("UpdateWaiting", 65)]
        assert cluster.states[-1].requester == "nodeagent"


async def test_the_queue_is_bounded(cluster: Cluster) -> None:
    async with reporting(cluster) as report:
        cluster.error = Unreachable("no answer", reason=Reason.KUBE_UNREACHABLE)
        for number in range(QUEUE + 50):
            waiting(report, str(number))
            waiting(report, str(number))
        cluster.error = None
        await asyncio.sleep(130)
        assert len(cluster.events) == QUEUE + 1
        assert cluster.events[0][0] == "NoticesDropped"


@pytest.mark.parametrize("kind", [Refused, Terminal])
async def test_a_refusal_is_logged_once_and_the_event_is_dropped(
    cluster: Cluster, kind: type[AgentError], capsys: Any
) -> None:
    async with reporting(cluster) as report:
        cluster.error = kind('cannot create resource "events"', reason="KubeForbidden")
        for number in range(5):
            waiting(report, str(number))
            await asyncio.sleep(10)
        assert capsys.readouterr().err.count("KubeForbidden") == 1
        cluster.error = None
        waiting(report, "now")
        await asyncio.sleep(10)
        assert cluster.events[-1][0] == "UpdateWaiting"
        assert len(cluster.events) == 1, "a refused event is not written later"


async def test_a_host_that_powers_off_reports_it_without_waiting(cluster: Cluster) -> None:
    async with reporting(cluster) as report:
        await asyncio.sleep(10)
        phase(report, Phase.DRAINING)
    assert cluster.states[-1].draining
    assert [reason for reason, _ in cluster.events] == ["DrainRequested"]
    cluster.error = Unreachable("no answer", reason=Reason.KUBE_UNREACHABLE)
    async with reporting(cluster) as report:
        phase(report, Phase.DRAINING)
    assert len(cluster.events) == 1


@pytest.mark.finding(
    "cluster: states that could not be written",
    "What could not be written yet is published again, also if nothing has changed.",
)
async def test_a_state_that_was_not_written_whole_is_published_again(cluster: Cluster) -> None:
    cluster.again = 300.0
    async with reporting(cluster):
        await asyncio.sleep(250)
        assert len(cluster.states) == 1
        cluster.again = None
        await asyncio.sleep(400)
        assert len(cluster.states) == 2
        await asyncio.sleep(1000)
        assert len(cluster.states) == 2
