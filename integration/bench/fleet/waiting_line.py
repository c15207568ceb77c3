# SPDX-License-Identifier: Apache-2.0
"""The queue of thousands of nodes for their slots, in virtual time: nodeagent's own pauses and reports, and a model of
the slots in place of an API server. An attempt that finds no free slot is one request (``course.py`` counts that)."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Final, cast

from nodeagent.errors import OutOfTurn
from nodeagent.reasons import Reason
from nodeagent.update.ports.events import Event, UpdateWaiting
from nodeagent.update.run import Ports
from nodeagent.update.wait import NotNow, Wait, Waiting, retry_on_refusal
from tests.world.run import LIMITS

SPREAD: Final = 36.0
# Seconds from the answer of the API server to the end of the attempt.
ASKS: Final = 0.1


@dataclass
class Clock:
    at: float = 0.0

    def monotonic(self) -> float:
        return self.at

    def now(self) -> str:
        return "2026-01-01T00:00:00.000Z"


@dataclass
class Reporter:
    news: int = 0

    def emit(self, event: Event) -> None:
        self.news += isinstance(event, UpdateWaiting) and not event.routine


def wait_for(number: int, slots: int) -> Wait:
    error = OutOfTurn(f"{slots} of {slots} slots are held: number {number} has one", reason=Reason.SLOT_HELD)
    try:
        with retry_on_refusal():
            raise error
    except NotNow as waits:
        return waits.wait
    raise AssertionError("it is always refused")


def queue(nodes: int, slots: int, hold: float, until: float) -> dict[str, object]:
    """``until``: seconds after which it is cut off."""
    chance, clock, reporter = random.Random(1), Clock(), Reporter()
    ports = cast(
        "Ports", SimpleNamespace(clock=clock, reporter=reporter, power=SimpleNamespace(boot_id=lambda: "boot"))
    )
    policy = replace(LIMITS, lease_retry=15.0)
    waits = [Waiting(ports, lambda: policy, None, chance.random) for _ in range(nodes)]
    # Attempts and, as negative numbers, ends of updates.
    agenda = [(chance.uniform(0, SPREAD), number) for number in range(nodes)]
    heapq.heapify(agenda)
    free, freed, idle, taken, attempts, handovers = slots, list[float](), 0.0, 0, 0, 0
    first, last_free, seconds = 0, 0.0, 1.0
    while agenda and agenda[0][0] < until:
        clock.at, number = heapq.heappop(agenda)
        if number < 0:
            free, handovers = free + 1, handovers + 1
            freed.append(clock.at)
            continue
        attempts += 1
        first += clock.at < 60.0
        if free:
            free, taken = free - 1, taken + 1
            # Nodes begin one after the other, so the first holder of a slot says nothing about the queue.
            idle += clock.at - freed.pop(0) if taken > slots else 0.0
            last_free = clock.at
            heapq.heappush(agenda, (clock.at + hold * chance.uniform(0.8, 1.2), -1))
        else:
            pause = waits[number].report(wait_for(handovers, slots))
            heapq.heappush(agenda, (clock.at + ASKS + pause, number))
    seconds = clock.at
    return {
        "nodes": nodes,
        "slots": slots,
        "updates": taken,
        "seconds": round(seconds),
        "complete": taken == nodes,
        "requests_per_second": round((attempts - taken) / seconds, 3),
        "requests_per_second_in_the_first_minute": round(first / 60, 1),
        "attempts_per_node": round(attempts / nodes, 1),
        "texts_per_node": round(reporter.news / nodes, 2),
        # Of the time in which nodes waited.
        "idle_share_of_slots": round(idle / (slots * last_free), 5) if last_free else None,
        **({"longer_than_ideal": round(seconds / (nodes / slots * hold) - 1, 4)} if taken == nodes else {}),
    }
