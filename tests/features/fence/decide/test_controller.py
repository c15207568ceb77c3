# SPDX-License-Identifier: Apache-2.0
"""The fence's controller: what holds whatever the victim says, and how it fares against victims of a known kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodeagent.features.fence.decide.bounds import Bounds, Idle, careful, floor_at, opening
from nodeagent.features.fence.decide.controller import ControllerState, IoLimits, LimitCause, begin, step
from nodeagent.features.fence.decide.shape import Shape
from nodeagent.features.fence.decide.signals import Reading, Source, Strain

SHAPE = Shape(32, 1, "mq-deadline", priorities=True)
HOUR = Bounds(deadline=3600, floor_iops=100)  # less than the floor in bytes, which is what these are about
KIB = 1024


def reading(at: float, strain: Strain) -> Reading:
    return Reading(Source.PROBE, at, strain, "some fsyncs")


@dataclass(frozen=True)
class Moment:
    now: float
    state: ControllerState

    @property
    def changed(self) -> bool:
        return self.state.changed == self.now

    @property
    def limits(self) -> IoLimits:
        return self.state.decision.limits

    @property
    def rate(self) -> float | None:
        """Bytes a second that the limits mean."""
        if self.limits.write_iops is not None:
            assert self.limits.shape is not None
            return self.limits.write_iops * self.limits.shape.max_sectors_kb * KIB
        return self.limits.write_bps


def run(
    seconds: int,
    strain: Callable[[float | None, IoLimits, int], Strain | None],
    *,
    bounds: Bounds = HOUR,
    shape: Shape | None = SHAPE,
    pace: float = 1.0,
    demand: float | None = None,
) -> list[Moment]:
    """``strain`` says what is felt after a tick, of the rate, the limits and the tick's number; None: nothing is.
    ``demand``: what the updater would write if it could."""
    moments = [Moment(0.0, begin(0.0, shape, bounds))]
    felt: Reading | None = None
    for tick in range(1, int(seconds / pace) + 1):
        now = tick * pace
        last = moments[-1]
        strained = strain(last.rate, last.limits, tick)
        felt = felt if strained is None else reading(now, strained)
        writing = None if demand is None else min(demand, last.rate or demand)
        moments.append(Moment(now, step(last.state, now, felt, shape, bounds, writing=writing)))
    return moments


def of(strain: Strain | None) -> Callable[[float | None, IoLimits, int], Strain | None]:
    return lambda _rate, _limits, _tick: strain


def above(capacity: float) -> Callable[[float | None, IoLimits, int], Strain]:
    """A victim that feels everything above a rate, and nothing below."""
    return lambda rate, _limits, _tick: Strain.STRAINED if rate is None or rate > capacity else Strain.CALM


# -- what always holds ------------------------------------------------------------------------------------------------

strains = st.lists(st.sampled_from([*Strain, None]), min_size=1, max_size=80)
shapes = st.sampled_from([None, SHAPE])
chosen = st.builds(
    Bounds,
    floor=st.sampled_from([1e6, 4e6, 8e6]),
    first=st.sampled_from([2e6, 16e6]),
    blind=st.sampled_from([2e6, 16e6]),
    ceiling=st.sampled_from([32e6, 256e6]),
    deadline=st.sampled_from([30.0, 3600.0]),
)
idle_ = st.sampled_from([Idle(0.001, 0.003), Idle(0.004, 0.03), Idle(0.008, 0.5)])
bounds_ = chosen | st.builds(opening, chosen, idle_)


@given(strains, shapes, bounds_, st.sampled_from([0.3, 1.0, 1.7]))
def test_always(felt: list[Strain | None], shape: Shape | None, bounds: Bounds, pace: float) -> None:
    moments = run(int(len(felt) * pace), lambda _r, _l, tick: felt[tick - 1], bounds=bounds, shape=shape, pace=pace)
    for moment in moments:
        limits = moment.limits
        assert moment.rate is None or moment.rate >= bounds.floor * 0.999, "below the floor"
        assert limits.write_bps is None or limits.write_iops is None, "two caps at once"
        assert limits.write_iops is None or limits.write_iops >= bounds.floor_iops
        assert (limits.write_iops is None) or limits.shape is not None, "writes of no known size are counted"
        assert limits.shape is None or limits.shape == shape
    changes = [moment.now for moment in moments if moment.changed]
    assert all(later - earlier >= bounds.interval for earlier, later in pairwise(changes))
    for before, after in pairwise(moments):
        assert after.changed or after.limits == before.limits
        if after.now >= bounds.deadline + bounds.interval:
            assert after.limits == IoLimits(), "it must end"


@settings(max_examples=40)
@given(strains, shapes)
def test_it_recovers(felt: list[Strain | None], shape: Shape | None) -> None:
    """The limits recover from any history once the protected workload is calm."""

    def then_calm(_rate: float | None, _limits: IoLimits, tick: int) -> Strain | None:
        return felt[tick - 1] if tick <= len(felt) else Strain.CALM

    moments = run(len(felt) + 400, then_calm, shape=shape)
    assert moments[-1].rate is None
    assert moments[-1].limits.shape == shape, "it stays until the end"


@settings(max_examples=40)
@given(strains, shapes, idle_)
def test_it_recovers_on_a_slow_disk(felt: list[Strain | None], shape: Shape | None, idle: Idle) -> None:
    """The rate rises to most of what the disk can do, and not above its bound."""
    bounds = opening(HOUR, idle)
    moments = run(
        len(felt) + 900,
        lambda _r, _l, tick: felt[tick - 1] if tick <= len(felt) else Strain.CALM,
        bounds=bounds,
        shape=shape,
    )
    rates = [math.inf if moment.rate is None else moment.rate for moment in moments]
    assert bounds.disk is not None
    assert rates[-1] >= 0.7 * min(bounds.disk, bounds.most)
    assert max(rates) <= bounds.most * 1.04


@settings(max_examples=20)
@given(st.floats(1e6, 400e6), shapes)
@example(3e6, SHAPE)
@example(206e6, None)
@example(390e6, SHAPE)
def test_it_does_not_swing(capacity: float, shape: Shape | None) -> None:
    """Once it knows where the victim is strained, it stays near, and tries again seldom."""
    moments = run(900, above(capacity), shape=shape, demand=400e6)[300:]
    rates = [400e6 if moment.rate is None else moment.rate for moment in moments]
    if 1.25 * capacity < HOUR.ceiling:
        assert max(rates) <= max(1.25 * capacity, HOUR.floor) * 1.04
    assert min(rates) >= min(max(HOUR.floor, capacity / 2), HOUR.ceiling / 2) * 0.98
    assert sum(moment.changed for moment in moments) <= 600 / 20
    if capacity > HOUR.floor * 1.04:
        strained = sum(rate > capacity for rate in rates)
        assert strained <= 600 / 20, "more than a twentieth of the time"


@given(strains, st.sampled_from([None, 5.0]))
def test_without_a_signal_nothing_is_loosened(felt: list[Strain | None], last: float | None) -> None:
    moments = run(len(felt), lambda _r, _l, tick: felt[tick - 1])
    state, now = moments[-1].state, moments[-1].now
    # An old reading of a calm victim, or none
    stale = None if last is None else reading(now - last - 1, Strain.CALM)
    rate = before = moments[-1].rate
    for tick in range(1, 60):
        state = step(state, now + tick, stale, SHAPE, HOUR)
        rate = Moment(now + tick, state).rate
        assert rate is not None or tick <= HOUR.stale + 2
        if rate is not None and before is not None:
            assert rate <= before
        before = rate
    assert state.decision.why is LimitCause.BLIND
    assert rate is not None
    assert rate <= HOUR.blind * 1.02
    assert state.decision.limits.shape == SHAPE


# -- one thing at a time ----------------------------------------------------------------------------------------------


def test_it_starts_shut() -> None:
    first = begin(0.0, SHAPE, HOUR).decision
    assert first.limits == IoLimits(write_iops=489, shape=SHAPE)
    assert first.why is LimitCause.STARTED
    assert begin(0.0, None, HOUR).decision.limits == IoLimits(write_bps=16_000_000)


@pytest.mark.parametrize(
    ("idle", "first", "disk", "most"),
    [
        (None, 16e6, None, math.inf),
        (Idle(0.001, 0.0019), 256e6, None, math.inf),
        (Idle(0.001, 0.002), 32.768e6, 65.536e6, 65.536e6),
        (Idle(0.004, 0.012), 8.192e6, 16.384e6, 16.384e6),
        (Idle(0.008, 0.5), 4.096e6, 8.192e6, 16e6),
        (Idle(0.01, 0.06), 4e6, 6.5536e6, 16e6),
        (Idle(5.0, 9.0), 4e6, 13107.2, 16e6),
    ],
    ids=["not measured", "fast", "1 ms", "4 ms", "8 ms", "10 ms: the floor", "stuck"],
)
def test_it_opens_as_far_as_the_idle_disk_lets_it(
    idle: Idle | None, first: float, disk: float | None, most: float
) -> None:
    known = None if disk is None else pytest.approx(disk)
    assert opening(HOUR, idle) == replace(HOUR, first=pytest.approx(first), disk=known, most=pytest.approx(most))


def test_nothing_is_sent_to_a_fast_disk_early() -> None:
    bounds = careful(HOUR, "ext4", "6.12.0")
    drains = [opening(bounds, idle).drain for idle in (None, Idle(0.004, 0.03), Idle(0.0005, 0.001))]
    assert drains == [bounds.drain, bounds.drain, None]
    assert bounds.drain


def test_the_way_to_all_that_the_disk_can_do_is_slow() -> None:
    """The rate rises more slowly where the disk was strained once."""
    bounds = opening(HOUR, Idle(0.0045, 0.03))  # which can do 14.6 MB/s; 16 are the most in any case
    rates = [moment.rate for moment in run(300, of(Strain.CALM), bounds=bounds, shape=None)]
    changes = [second for second in range(1, 301) if rates[second] != rates[second - 1]]
    steps = [(second, round((rates[second] or 0) / 1e6, 1)) for second in changes]
    assert steps == [(24, 9.1), (48, 11.4), (72, 14.2), (192, 16.0)]
    once = run(100, lambda _rate, _limits, tick: Strain.STRAINED if tick == 30 else Strain.CALM, bounds=bounds)
    assert max(moment.rate or math.inf for moment in once[32:]) == pytest.approx(5.7e6, rel=0.01)


def test_a_slow_disk_is_never_asked_for_more_than_it_can_do() -> None:
    """However calm the victim is: but what is due is allowed (``test_what_is_due_is_allowed``)."""
    bounds = opening(HOUR, Idle(0.008, 0.03))
    moments = run(600, of(Strain.CALM), bounds=bounds)
    assert moments[-1].limits.write_iops == 477, "489 would be; less than a tenth is not worth a change"
    assert max(moment.limits.write_iops or math.inf for moment in moments) == 477
    assert moments[-1].limits.shape == SHAPE, "nor is its queue changed"


def test_a_fast_disk_is_open_until_etcd_is_strained() -> None:
    bounds = opening(HOUR, Idle(0.0005, 0.001))
    state = begin(0.0, None, bounds)
    assert state.decision.limits == IoLimits()
    assert step(state, 1.0, reading(1.0, Strain.CALM), None, bounds).decision.limits == IoLimits()
    strained = step(state, 1.0, reading(1.0, Strain.STRAINED), None, bounds, writing=80e6)
    assert strained.decision.limits == IoLimits(write_bps=40_000_000)


def test_a_strain_halves_the_cap() -> None:
    state = step(begin(0.0, None, HOUR), 1.0, reading(1.0, Strain.STRAINED), None, HOUR)
    assert state.decision.limits == IoLimits(write_bps=8_000_000)
    assert state.decision.why is LimitCause.STRAINED
    assert state.decision.because == "probe: some fsyncs"


def test_a_lower_cap_gets_time_to_work() -> None:
    moments = run(4, of(Strain.STRAINED), shape=None)
    assert [moment.rate for moment in moments] == [16e6, 8e6, 8e6, 4e6, 4e6]


def test_the_reason_at_the_floor_is_the_victim() -> None:
    bounds = replace(HOUR, first=6e6)
    moments = run(2, of(Strain.STRAINED), bounds=bounds, shape=None)
    assert [(moment.rate, moment.state.decision.why) for moment in moments[1:]] == [(4e6, LimitCause.STRAINED)] * 2


def test_and_also_where_nothing_more_can_be_done_about_it() -> None:
    shut = run(10, of(Strain.STRAINED), bounds=Bounds(first=4e6, floor=4e6, floor_iops=200))
    assert len({moment.limits for moment in shut}) == 1
    assert shut[-1].state.decision.why is LimitCause.STRAINED
    assert not any(moment.changed for moment in shut[1:])
    calm = run(2, of(Strain.CALM), bounds=Bounds(first=4e6, floor=4e6, floor_iops=200))
    assert calm[-1].state.decision.why is LimitCause.STARTED, "a calm moment is not why the limits are what they are"


def test_it_halves_what_is_written_not_what_would_be_allowed() -> None:
    def after(rate: float | None, writing: float | None) -> float | None:
        state = replace(begin(0.0, None, HOUR), rate=rate)
        return step(state, 1.0, reading(1.0, Strain.STRAINED), None, HOUR, writing=writing).rate

    assert after(100e6, 70e6) == 35e6
    assert after(100e6, 120e6) == 50e6
    assert after(100e6, 0.0) == 25e6, "that was a pause"
    assert after(None, 30e6) == 15e6
    assert after(None, None) == 16e6


def test_a_stall_shuts_everything() -> None:
    calm = run(200, of(Strain.CALM))[-1]
    assert calm.limits == IoLimits(shape=SHAPE)
    state = step(calm.state, 201.0, reading(201.0, Strain.STALLED), SHAPE, HOUR)
    assert state.decision.limits == IoLimits(write_iops=123, shape=SHAPE)
    assert state.decision.why is LimitCause.STALLED


def test_the_floor_rises_in_the_second_half_of_the_time() -> None:
    """The floor rises also if the protected workload is stalled all the time."""
    bounds = replace(HOUR, deadline=100)
    state = step(begin(0.0, None, bounds), 75.0, reading(75.0, Strain.STALLED), None, bounds)
    assert state.decision.limits.write_bps == pytest.approx((bounds.floor + bounds.ceiling) / 2 * 1.25)
    assert state.decision.why is LimitCause.PROGRESS


def test_after_the_deadline_everything_is_open() -> None:
    moments = run(32, of(Strain.STALLED), bounds=Bounds(deadline=30))
    assert moments[-1].limits == IoLimits()
    assert moments[-1].state.decision.why is LimitCause.DEADLINE


@given(st.floats(0, 4000), st.floats(0, 100))
def test_the_floor_rises(elapsed: float, more: float) -> None:
    earlier, later = floor_at(HOUR, elapsed), floor_at(HOUR, elapsed + more)
    assert HOUR.floor <= earlier <= later <= HOUR.ceiling
