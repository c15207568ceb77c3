# SPDX-License-Identifier: Apache-2.0
"""The controller against a victim whose latencies were measured: is it plausible?

On a slow virtual disk (500 writes and 12 MB a second, XFS), with objects synced one by one, each row is a way to stage
218 MB: what 50 appends a second felt, and how long it took. Only the rows are measured. That the victim feels at once
what a row says, and between two rows what the worse one says, is an assumption; so nothing here is a statement about a
disk, only one about the decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from nodeagent.features.fence.decide.bounds import Bounds
from nodeagent.features.fence.decide.controller import IoLimits, LimitCause, begin, step
from nodeagent.features.fence.decide.shape import QueueFacts, Shape, choose_shape
from nodeagent.features.fence.decide.signals import Reading, of_probe, target

BYTES = 218e6


@dataclass(frozen=True)
class Row:
    p99: float
    """Open-loop, ms."""
    most: float
    seconds: float


IDLE = Row(9, 12, 0)
UNFENCED = Row(3188, 3508, 33)
SMALL_REQUESTS = Row(610, 790, 31)  # 64 KiB, no shorter queue
SHAPED = Row(93, 162, 38)  # 32 KiB, depth 1, mq-deadline, idle class: the worse of two runs
SHAPED_120 = Row(44, 83, 110)  # and 120 writes a second: the worse of two runs
AIM = target(IDLE.p99 / 1000)
LOW = Bounds(floor_iops=100)


def row(limits: IoLimits) -> Row:
    if limits.shape is None:
        return UNFENCED
    if limits.shape.max_sectors_kb > 32 or not limits.shape.priorities:
        return SMALL_REQUESTS
    return SHAPED if limits.write_iops is None or limits.write_iops > 130 else SHAPED_120


def felt(now: float, limits: IoLimits) -> Reading:
    """Fifty appends in a second of that row; the longest of its many seconds comes once in twenty."""
    found = row(limits)
    latencies = [IDLE.p99 / 1000] * 48 + [found.p99 / 1000] * 2
    if int(now) % 20 == 7:
        latencies[0] = found.most / 1000
    reading = of_probe(now, latencies, 0.0, AIM)
    assert reading is not None
    return reading


def staged(shape: Shape, bounds: Bounds) -> tuple[list[IoLimits], list[LimitCause], float]:
    """Every second's limits, the reasons of the changes, and how long it took."""
    state, now, left = begin(0.0, shape, bounds), 0.0, BYTES
    held, reasons = [state.decision.limits], [state.decision.why]
    while left > 0 and now < 3 * bounds.deadline:
        limits = state.decision.limits
        left -= BYTES / row(limits).seconds
        now += 1.0
        state = step(state, now, felt(now, limits), shape, bounds)
        held.append(state.decision.limits)
        reasons += [state.decision.why] if state.changed == now else []
    return held, reasons, now


def shape_of(may_switch: bool) -> Shape:
    found = choose_shape(QueueFacts(1280, "none", ("none", "mq-deadline")), IDLE.p99 / 1000, may_switch=may_switch)
    assert isinstance(found, Shape)
    return found


def test_it_finds_the_row_without_harm() -> None:
    held, _, seconds = staged(shape_of(may_switch=True), LOW)
    settled = held[10:]
    assert {row(limits) for limits in settled} == {SHAPED_120}
    assert seconds <= 1.1 * SHAPED_120.seconds


def test_it_does_not_take_three_times_as_long_for_that() -> None:
    """120 writes a second take the last 80 ms off the longest, and triple the staging."""
    held, _, seconds = staged(shape_of(may_switch=True), Bounds())
    assert {row(limits) for limits in held[10:]} == {SHAPED}
    assert seconds <= 1.5 * UNFENCED.seconds


def test_it_does_not_change_what_cannot_be_changed() -> None:
    """Without another scheduler nothing helps on this disk: the rate stays at its minimum until the end."""
    held, reasons, _ = staged(shape_of(may_switch=False), LOW)
    assert {limits.write_iops for limits in held[3:]} == {123}
    assert reasons.count(LimitCause.CALM) == 0


def test_an_update_in_a_hurry_is_in_time() -> None:
    bounds = replace(LOW, deadline=60)
    _, reasons, seconds = staged(shape_of(may_switch=True), bounds)
    assert LimitCause.PROGRESS in reasons
    assert seconds <= bounds.deadline


def test_it_decides_seldom() -> None:
    held, _, seconds = staged(shape_of(may_switch=True), LOW)
    assert sum(a != b for a, b in pairwise(held)) <= seconds / 10
