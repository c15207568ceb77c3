# SPDX-License-Identifier: Apache-2.0
"""The pauses between two attempts, and what ends them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.reasons import Reason
from nodeagent.report.counters import Counters
from nodeagent.report.node_events import NodeMemory
from nodeagent.report.status import Status
from nodeagent.report.status_fold import fold
from nodeagent.report.views.registry import view_of
from nodeagent.update.ports.events import HostDegraded, UpdateWaiting
from nodeagent.update.wait import (
    CONFIG,
    FAULT,
    FORGOTTEN,
    LONGEST_FOR_HOLDER,
    LONGEST_IN_QUEUE,
    SERVICE,
    Pace,
    Pauses,
    Wait,
    Waiting,
)
from tests.world import FakeUnit, World
from tests.world.run import LIMITS, Host

pytestmark = pytest.mark.looptime

HELD = Wait(Reason.LEASE_HELD, "another holder has the lease", subject="another holder has the lease")
AWAY = Wait(Reason.BUS_TIMEOUT, "no answer within 25 s", service="systemd")


def waiting(host: Host, *, service_wait: float = 100.0) -> Waiting:
    host.limits = replace(LIMITS, service_wait=service_wait, lease_retry=15.0)
    return Waiting(host.ports(), lambda: host.limits, None, lambda: 0.0)


def host_at_rest() -> Host:
    return Host(World(units={"app.service": FakeUnit()}))


@given(st.floats(0.1, 60.0), st.floats(1.0, 60.0), st.integers(1, 9) | st.none(), st.floats(0.0, 1.0))
def test_pauses_double_to_the_longest_and_end_after_the_tries(
    first: float, times: float, tries: int | None, random: float
) -> None:
    pauses = Pauses(Pace(first, first * times, tries), lambda: random)
    seconds = [pauses.next() for _ in range(12)]
    made = [pause for pause in seconds if pause is not None]
    assert len(made) == (12 if tries is None else tries - 1)
    assert seconds[len(made) :] == [None] * (12 - len(made)), "there is no attempt after the last one"
    assert all(first <= pause <= 1.2 * first * times + 1e-9 for pause in made)
    assert made == sorted(made)
    pauses.forget()
    assert pauses.next() == seconds[0]


def test_the_pauses_of_faults_and_configs_are_those_that_the_docs_name() -> None:
    assert (FAULT.tries, CONFIG.tries, SERVICE.tries) == (3, None, None)


async def test_a_holder_is_waited_for_at_the_pace_of_the_settings() -> None:
    host = host_at_rest()
    waits = waiting(host)
    assert [waits.report(HELD) for _ in range(4)] == [15.0, 30.0, LONGEST_FOR_HOLDER, LONGEST_FOR_HOLDER]
    host.limits = replace(host.limits, lease_retry=5.0)
    other = replace(HELD, message="an operator has the lease", subject="an operator has the lease")
    assert waits.report(other) == 5.0, "another cause, with the settings that were read again"
    assert waits.report(replace(other, after=1.5)) == 1.5
    assert len([event for event in host.world.events if isinstance(event, UpdateWaiting)]) == 2, "each cause once"


def in_queue(who: str) -> Wait:
    brief = "1 of 1 slots are held"
    return Wait(Reason.SLOT_HELD, f"{brief}: {who}", subject=brief, brief=brief)


@pytest.mark.finding(
    "cluster: cost of a failed attempt",
    "That a slot went from one node to another changes the status of those that wait, and nothing else.",
)
async def test_a_handover_of_others_is_no_news() -> None:
    host = host_at_rest()
    waits = waiting(host)
    pauses = [waits.report(in_queue(who)) for who in ("a", "b", "b", "c")]
    assert pauses == [15.0, 30.0, 60.0, 60.0], "a handover is no cause to ask sooner"
    emitted = [event for event in host.world.events if isinstance(event, UpdateWaiting)]
    assert [event.routine for event in emitted] == [False, True, True]
    status, memory, counters = Status(), NodeMemory(), Counters()
    noted = []
    for event in emitted:
        view = view_of(event)
        status = fold(status, event)
        noted += [*view.node_events(event, status, memory), *filter(None, [view.level_of(event)])]
        view.count(event, status, counters)
        assert status.brief == "1 of 1 slots are held"
    assert len(noted) == 2, "an Event of the Node and an entry of the journal"
    assert sum(counters.waits.values()) == 1
    assert status.message.startswith("1 of 1 slots are held: c")


async def test_the_pause_grows_with_the_time_in_the_queue() -> None:
    host = host_at_rest()
    waits = waiting(host)
    waits.report(in_queue("a"))
    waited, pauses = 0.0, []
    while waited < 12 * 3600:
        pause = waits.report(in_queue("b"))
        pauses.append(pause)
        waited += pause
        await asyncio.sleep(pause)
    assert pauses == sorted(pauses)
    assert max(pauses[: len(pauses) // 4]) == LONGEST_FOR_HOLDER, "in the first hour"
    assert pauses[-1] == LONGEST_IN_QUEUE
    assert all(pause <= max(LONGEST_FOR_HOLDER, sum(pauses[:index]) / 50) for index, pause in enumerate(pauses))


async def test_a_service_that_stays_away_makes_the_host_degraded() -> None:
    host = host_at_rest()
    waits = waiting(host, service_wait=0.0)
    waits.begin()
    assert waits.report(AWAY) == SERVICE.first
    assert waits.overdue
    assert waits.report(AWAY) == 2 * SERVICE.first
    assert isinstance(host.world.events[-1], HostDegraded)
    waits.end()
    assert not waits.overdue
    assert waits.report(AWAY) == SERVICE.first, "another outage"


async def test_an_attempt_that_lasted_begins_another_outage() -> None:
    host = host_at_rest()
    waits = waiting(host)
    waits.begin()
    waits.report(AWAY)
    waits._attempt -= FORGOTTEN
    assert waits.report(AWAY) == SERVICE.first
