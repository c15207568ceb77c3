# SPDX-License-Identifier: Apache-2.0
"""Decides the limits of the updater, once a second.

The cap rises by a quarter after a period of calm, and is halved at a strain. (Additive steps would take minutes on a
fast disk, and be too large for a slow one.) Two rules keep the cap from oscillating:

- The rate at which the protected workload was strained is remembered; before there was one, the rate that the disk is
  expected to reach. Up to six tenths of it the cap rises quickly, around it slowly, and more slowly each time. Beyond
  the rate that the disk is expected to reach, a step takes minutes.
- The cap is halved from the real write rate of the updater, not from a cap that was not reached.

If the queue has a shape, the cap counts writes, otherwise bytes, and never both, because kernels before 6.16 handle the
combination wrongly. Counting writes makes sense only if they are cut to a known size: a cap on bytes lets a large
object through in one piece, and every other writer waits for it.

These rules hold for all signals: no cap is below the floor; there is one change per ``interval``; nothing is loosened
without a fresh signal, except after the deadline, when nothing is limited any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from nodeagent.features.fence.decide.bounds import FENCE_BOUNDS, Bounds, floor_at
from nodeagent.features.fence.decide.shape import Shape
from nodeagent.features.fence.decide.signals import Reading, Strain

_UP, _DOWN = 1.25, 0.5
# Parts of the rate of the last strain: the cap rises slowly from the first on, and forgets that rate at the second.
_NEAR, _BEYOND = 0.6, 1.5
# Smaller changes of the cap are not made.
_LEAST_CHANGE = 0.1
_KIB = 1024


class LimitCause(StrEnum):
    """The cause of the current limits, shown by ``status``, the journal and the history."""

    STARTED = "started"
    CALM = "calm"
    STRAINED = "strained"
    STALLED = "stalled"
    # There is no signal of the protected workload.
    BLIND = "blind"
    # Otherwise the update would miss the deadline.
    PROGRESS = "progress"
    DEADLINE = "deadline"


# Causes that are shown even if the limits cannot be changed any further.
_BAD = frozenset({LimitCause.STRAINED, LimitCause.STALLED, LimitCause.BLIND})


@dataclass(frozen=True, slots=True)
class IoLimits:
    """None: no limit. At most one of the caps is set."""

    write_bps: int | None = None
    write_iops: int | None = None
    shape: Shape | None = None

    @property
    def rate(self) -> int | None:
        """Bytes per second that the cap amounts to."""
        if self.write_iops is None or self.shape is None:
            return self.write_bps
        return self.write_iops * self.shape.max_sectors_kb * _KIB


@dataclass(frozen=True, slots=True)
class LimitDecision:
    """``because`` is the message for operators."""

    limits: IoLimits
    why: LimitCause
    because: str


@dataclass(frozen=True, slots=True)
class ControllerState:
    """Times are those of the loop, in seconds. ``changed`` is that of the last change of the limits."""

    started: float
    changed: float
    decision: LimitDecision
    # The cap in bytes per second; None: no cap.
    rate: float | None
    patience: float
    # The time of the last reading that was handled.
    handled: float
    calm_since: float
    # The last reading was a strain.
    strained: bool = False
    # The rate of the last strain, or the expected rate of the disk.
    strained_at: float | None = None


@dataclass(frozen=True, slots=True)
class _Turn:
    """The inputs of one decision. ``shape`` of the queues, if they have one; ``writing``: the recent write rate; None:
    unknown."""

    now: float
    shape: Shape | None
    bounds: Bounds
    writing: float | None


def begin(now: float, shape: Shape | None, bounds: Bounds = FENCE_BOUNDS) -> ControllerState:
    """Start with tight limits, because the first seconds of an update hurt like all others.

    A disk that is known to be fast has no cap from the start (``opening``).
    """
    rate = max(bounds.first, bounds.floor) if bounds.first < bounds.ceiling else None
    limits = _limits(_Turn(now, shape, bounds, None), rate)
    decision = LimitDecision(limits, LimitCause.STARTED, "an update is about to be staged")
    patience = bounds.patience if bounds.disk is None else bounds.wary
    return ControllerState(now, now, decision, rate, patience, now, now, strained_at=bounds.disk)


def step(
    state: ControllerState,
    now: float,
    reading: Reading | None,
    shape: Shape | None,
    bounds: Bounds = FENCE_BOUNDS,
    *,
    writing: float | None = None,
) -> ControllerState:
    """Decide the next limits; they are in ``decision``. May be called at any interval.

    ``reading``: the latest, from ``weigh``; ``writing``: the recent write rate of the updater in bytes per second;
    None: unknown.
    """
    turn = _Turn(now, shape, bounds, writing)
    # Each change needs time to have an effect. Faster decisions would react to the past.
    if now - state.changed < bounds.interval:
        return state
    # After the deadline the update matters more than latency, so nothing is limited any more.
    if now - state.started >= bounds.deadline:
        because = f"not finished after {bounds.deadline:.0f} s: nothing is limited any more"
        return _decided(replace(state, rate=None), turn, LimitCause.DEADLINE, because)
    if reading is None or now - reading.at > bounds.stale:
        return _blind(state, turn) if now - state.handled > bounds.stale else _in_time(state, turn)
    # The same reading must not count twice.
    if reading.at <= state.handled:
        return _in_time(state, turn)
    state = replace(state, handled=reading.at)
    if reading.strain is Strain.CALM:
        return _calm(state, turn, reading.why)
    return _strained(state, turn, reading)


def _calm(state: ControllerState, turn: _Turn, because: str) -> ControllerState:
    bounds = turn.bounds
    rate, patience, strained_at = state.rate, state.patience, state.strained_at
    calm_for = turn.now - max(state.calm_since, state.changed)
    if rate is None:
        forget = calm_for >= bounds.relax
    else:
        # Near the rate of the last strain, the next step waits longer, and twice as long after each strain.
        near = strained_at is not None and rate * _UP > strained_at * _NEAR
        wait = patience if near else bounds.patience
        if bounds.disk is not None and rate * _UP > bounds.disk:
            wait = max(wait, bounds.bold)
        if calm_for >= wait:
            more = min(rate * _UP, max(bounds.most, rate))
            rate = more if more < bounds.ceiling else None
        forget = strained_at is not None and rate is not None and rate > strained_at * _BEYOND
    if forget:
        strained_at, patience = None, bounds.patience
    state = replace(state, rate=rate, patience=patience, strained_at=strained_at, strained=False)
    return _in_time(state, turn, LimitCause.CALM, because)


def _strained(state: ControllerState, turn: _Turn, reading: Reading) -> ControllerState:
    bounds = turn.bounds
    stalled = reading.strain is Strain.STALLED
    again = state.strained
    state = replace(state, calm_since=turn.now, strained=True)
    # Data that was written before the last change still drains, so one more strain is expected.
    if again and not stalled and turn.now - state.changed < bounds.settle:
        return _in_time(state, turn)
    rate = _real_rate(state.rate, turn)
    if not again:
        patience = min(2 * state.patience, bounds.patience_most)
        # A strain at the floor has another cause than the updater, or cannot be helped, so it sets no rate.
        strained_at = rate if rate > bounds.floor else state.strained_at
        state = replace(state, patience=patience, strained_at=strained_at)
    state = replace(state, rate=bounds.floor if stalled else max(bounds.floor, rate * _DOWN))
    because = f"{reading.source}: {reading.why}"
    return _in_time(state, turn, LimitCause.STALLED if stalled else LimitCause.STRAINED, because)


def _real_rate(rate: float | None, turn: _Turn) -> float:
    """Return the rate that caused a strain: the measured one if the cap was not reached.

    The measurement covers a moment that may have been a pause, so the result is at least half of the cap.
    """
    if rate is None:
        return 2 * turn.bounds.first if turn.writing is None else max(turn.writing, turn.bounds.floor)
    return rate if turn.writing is None else min(rate, max(turn.writing, rate / 2))


def _blind(state: ControllerState, turn: _Turn) -> ControllerState:
    # Without a signal a moderate cap protects a workload that cannot be measured.
    blind = max(turn.bounds.blind, turn.bounds.floor)
    rate = blind if state.rate is None else min(state.rate, blind)
    state = replace(state, strained=False, rate=rate, calm_since=turn.now)
    return _in_time(state, turn, LimitCause.BLIND, f"no latency of etcd for {turn.bounds.stale:.0f} s")


def _in_time(
    state: ControllerState, turn: _Turn, cause: LimitCause | None = None, because: str = ""
) -> ControllerState:
    """Raise the rate to what the deadline requires. ``cause`` None: there is no other change.

    The rate is raised by a whole step, because the required rate grows each second.
    """
    bounds = turn.bounds
    due = floor_at(bounds, turn.now - state.started)
    if state.rate is not None and state.rate < due:
        rate = due * _UP if due > bounds.floor else due
        late = replace(state, rate=rate if rate < bounds.ceiling else None)
        return _decided(late, turn, LimitCause.PROGRESS, f"{due / 1e6:.1f} MB/s are needed to be done in time")
    return state if cause is None else _decided(state, turn, cause, because)


def _decided(state: ControllerState, turn: _Turn, cause: LimitCause, because: str) -> ControllerState:
    limits = IoLimits() if cause is LimitCause.DEADLINE else _limits(turn, state.rate)
    if _differs(limits, state.decision.limits):
        return replace(state, changed=turn.now, decision=LimitDecision(limits, cause, because))
    if cause in _BAD:
        return replace(state, decision=LimitDecision(state.decision.limits, cause, because))
    # The previous cause is still the one of the current limits.
    return state


def _differs(new: IoLimits, old: IoLimits) -> bool:
    for cap, before in ((new.write_bps, old.write_bps), (new.write_iops, old.write_iops)):
        if (cap is None) != (before is None):
            return True
        # A small difference is not worth a change, because each change of a queue stops it for a moment.
        if cap is not None and before is not None and abs(cap - before) > _LEAST_CHANGE * before:
            return True
    return new.shape != old.shape


def _limits(turn: _Turn, rate: float | None) -> IoLimits:
    shape = turn.shape
    if rate is None:
        return IoLimits(shape=shape)
    if shape is None:
        return IoLimits(write_bps=round(rate))
    iops = max(turn.bounds.floor_iops, -(-round(rate) // (shape.max_sectors_kb * _KIB)))
    return IoLimits(write_iops=iops, shape=shape)
