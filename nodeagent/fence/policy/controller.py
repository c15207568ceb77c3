"""Decides the limits of the updater, a second at a time.

The cap rises by a quarter when the victim was calm for a while, and is halved when it is strained (additive steps would
take minutes on a fast disk and too much of a slow one). Two things keep it from swinging. A rate at which the victim
was strained is remembered, and before it ever was, the rate that the disk can do by what is known of it: up to six
tenths of it the way is quick, around it slow, and slower each time; beyond what the disk can do it takes minutes. And a
cap is halved from what the updater really writes, not from a number that did not bind.

Where the queue is shaped the cap counts writes, else bytes; never both, which kernels before 6.16 get wrong. Counting
writes makes sense only when they are cut to a known size: a cap on bytes lets a large object through in one piece, in
which everybody else waits.

What always holds, whatever the signals say: no cap below the floor; one change in ``interval`` seconds; nothing is
loosened without a fresh signal, except for the deadline, after which nothing is limited at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from nodeagent.fence.policy.bounds import FENCE_BOUNDS, Bounds, floor_at
from nodeagent.fence.policy.shape import Shape
from nodeagent.fence.policy.signals import Reading, Strain

__all__ = ["Decision", "Limits", "State", "Why", "begin", "step"]

_UP, _DOWN = 1.25, 0.5
_NEAR, _BEYOND = 0.6, 1.5  # of the rate at which the victim was strained: where it is approached, where it is forgotten
_WORTH = 0.1  # changes of the cap smaller than this part of it are not made
_KIB = 1024


class Why(StrEnum):
    """Why limits are what they are: what ``status``, journal and history show."""

    STARTED = "started"
    CALM = "calm"
    STRAINED = "strained"
    STALLED = "stalled"
    BLIND = "blind"
    """Nobody knows how the victim fares."""
    PROGRESS = "progress"
    """The update would be late."""
    DEADLINE = "deadline"


_BAD = frozenset({Why.STRAINED, Why.STALLED, Why.BLIND})
"""What is said also where nothing more can be done about it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit. At most one of the caps is set."""

    write_bps: int | None = None
    write_iops: int | None = None
    shape: Shape | None = None

    @property
    def rate(self) -> int | None:
        """Bytes a second that either cap makes."""
        if self.write_iops is None or self.shape is None:
            return self.write_bps
        return self.write_iops * self.shape.max_sectors_kb * _KIB


@dataclass(frozen=True, slots=True)
class Decision:
    limits: Limits
    why: Why
    because: str
    """For people."""
    changed: bool


@dataclass(frozen=True, slots=True)
class State:
    started: float
    changed: float
    decision: Decision
    rate: float | None
    """Bytes a second; None: no cap."""
    rung: int
    """Of the ladder of shapes; 0 is none."""
    patience: float
    heard: float
    """When the last reading was taken that we acted on."""
    calm_since: float
    blind: bool = False
    """Nobody knows how the victim fares, now."""
    strained: bool = False
    """So said the last reading."""
    strained_at: float | None = None
    """The rate at which it began to be, or will by what is known of the disk."""
    relaxed: int = 0


def begin(now: float, ladder: Sequence[Shape], bounds: Bounds = FENCE_BOUNDS) -> State:
    """Shut first, and opened when that turns out to be needless: the first seconds of an update hurt as others do. Not
    on a disk that is known to be fast (``opening``)."""
    rate = max(bounds.first, bounds.floor) if bounds.first < bounds.ceiling else None
    limits = _limits(rate, len(ladder), ladder, bounds)
    decision = Decision(limits, Why.STARTED, "an update is about to be staged", changed=True)
    patience = bounds.patience if bounds.disk is None else bounds.wary
    return State(now, now, decision, rate, len(ladder), patience, now, now, strained_at=bounds.disk)


def step(
    state: State,
    now: float,
    reading: Reading | None,
    ladder: Sequence[Shape],
    bounds: Bounds = FENCE_BOUNDS,
    *,
    writing: float | None = None,
    left: float | None = None,
) -> State:
    """What to hold from now on is in ``decision``. Called as often as anybody likes.

    ``reading``: the latest, from ``weigh``; ``writing``: bytes a second that the updater wrote lately, ``left``: bytes
    that it has still to write; None where nobody knows.
    """
    if now - state.changed < bounds.interval:
        return _held(state)
    if now - state.started >= bounds.deadline:
        because = f"not finished after {bounds.deadline:.0f} s: nothing is limited any more"
        return _decided(replace(state, rate=None, rung=0), now, Why.DEADLINE, because, ladder, bounds)
    if reading is None or now - reading.at > bounds.stale:
        if now - state.heard > bounds.stale:
            return _blind(state, now, ladder, bounds, left)
        return _in_time(state, now, ladder, bounds, left)
    if reading.at <= state.heard:  # we acted on it already
        return _in_time(state, now, ladder, bounds, left)
    state = replace(state, heard=reading.at, blind=False)
    if reading.strain is Strain.CALM:
        return _calm(state, now, reading.why, ladder, bounds, left)
    return _strained(state, now, reading, ladder, bounds, writing, left)


def _calm(state: State, now: float, because: str, ladder: Sequence[Shape], bounds: Bounds, left: float | None) -> State:
    rate, rung, relaxed, patience, known = state.rate, state.rung, state.relaxed, state.patience, state.strained_at
    for_now = now - max(state.calm_since, state.changed)
    if rate is None:
        forget = for_now >= bounds.relax
        if forget and rung > 1 and relaxed < bounds.relaxations:
            rung, relaxed = rung - 1, relaxed + 1
    else:
        near = known is not None and rate * _UP > known * _NEAR
        wait = patience if near else bounds.patience
        if bounds.disk is not None and rate * _UP > bounds.disk:
            wait = max(wait, bounds.bold)
        if for_now >= wait:
            more = min(rate * _UP, max(bounds.most, rate))
            rate = more if more < bounds.ceiling else None
        forget = known is not None and rate is not None and rate > known * _BEYOND
    if forget:
        known, patience = None, bounds.patience
    state = replace(state, rate=rate, rung=rung, relaxed=relaxed, patience=patience, strained_at=known)
    return _in_time(replace(state, strained=False), now, ladder, bounds, left, Why.CALM, because)


def _strained(
    state: State,
    now: float,
    reading: Reading,
    ladder: Sequence[Shape],
    bounds: Bounds,
    writing: float | None,
    left: float | None,
) -> State:
    stalled = reading.strain is Strain.STALLED
    again = state.strained
    state = replace(state, calm_since=now, strained=True)
    if again and not stalled and now - state.changed < bounds.settle:
        return _in_time(state, now, ladder, bounds, left)
    was = _real(state.rate, writing, bounds)
    if not again:
        patience = min(2 * state.patience, bounds.patience_most)
        # At the floor nothing is learned: it is not our writing that hurts there, or nothing can be done about it.
        known = was if was > bounds.floor else state.strained_at
        state = replace(state, patience=patience, strained_at=known)
    rate = bounds.floor if stalled else max(bounds.floor, was * _DOWN)
    rung = len(ladder) if stalled else min(state.rung + 1, len(ladder))
    why = Why.STALLED if stalled else Why.STRAINED
    because = f"{reading.source}: {reading.why}"
    return _in_time(replace(state, rate=rate, rung=rung), now, ladder, bounds, left, why, because)


def _real(rate: float | None, writing: float | None, bounds: Bounds) -> float:
    """What the victim was strained by: what the updater wrote, where the cap did not bind. That is measured over a
    moment that may have been a pause, so half of the cap is the least that is believed."""
    if rate is None:
        return 2 * bounds.first if writing is None else max(writing, bounds.floor)
    return rate if writing is None else min(rate, max(writing, rate / 2))


def _blind(state: State, now: float, ladder: Sequence[Shape], bounds: Bounds, left: float | None) -> State:
    blind = max(bounds.blind, bounds.floor)
    rate = blind if state.rate is None else min(state.rate, blind)
    state = replace(state, blind=True, strained=False, rate=rate, rung=len(ladder), calm_since=now)
    because = f"no sign of the victim for {bounds.stale:.0f} s"
    return _in_time(state, now, ladder, bounds, left, Why.BLIND, because)


def _in_time(
    state: State,
    now: float,
    ladder: Sequence[Shape],
    bounds: Bounds,
    left: float | None,
    why: Why | None = None,
    because: str = "",
) -> State:
    """With the rate that the deadline asks for, if that is more. ``why`` None: nothing else happened. The rate that is
    due is overtaken by a step, or it would be changed each second."""
    due = floor_at(bounds, now - state.started, left)
    if state.rate is not None and state.rate < due:
        rate = due * _UP if due > bounds.floor else due
        late = replace(state, rate=rate if rate < bounds.ceiling else None)
        because = f"{due / 1e6:.1f} MB/s are needed to be done in time"
        return _decided(late, now, Why.PROGRESS, because, ladder, bounds)
    if why is None:
        return _held(state)
    return _decided(state, now, why, because, ladder, bounds)


def _decided(state: State, now: float, why: Why, because: str, ladder: Sequence[Shape], bounds: Bounds) -> State:
    limits = _limits(state.rate, state.rung, ladder, bounds)
    if not _differs(limits, state.decision.limits):
        if why not in _BAD:
            return _held(state)  # it says still why limits are what they are
        limits = state.decision.limits
        return replace(state, decision=Decision(limits, why, because, changed=False))
    return replace(state, changed=now, decision=Decision(limits, why, because, changed=True))


def _held(state: State) -> State:
    return replace(state, decision=replace(state.decision, changed=False))


def _differs(new: Limits, old: Limits) -> bool:
    caps = ((new.write_bps, old.write_bps), (new.write_iops, old.write_iops))
    for cap, before in caps:
        if (cap is None) != (before is None):
            return True
        if cap is not None and before is not None and abs(cap - before) > _WORTH * before:
            return True
    return new.shape != old.shape


def _limits(rate: float | None, rung: int, ladder: Sequence[Shape], bounds: Bounds) -> Limits:
    shape = ladder[rung - 1] if rung else None
    if rate is None:
        return Limits(shape=shape)
    if shape is None:
        return Limits(write_bps=round(rate))
    iops = max(bounds.floor_iops, -(-round(rate) // (shape.max_sectors_kb * _KIB)))
    return Limits(write_iops=iops, shape=shape)
