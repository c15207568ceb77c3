# SPDX-License-Identifier: Apache-2.0
"""Fold the events of an update into its trail."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeVar

from nodeagent.update.history.trail import Boot, PaceTrail, Result, Sample, Span, StagingPace, Trail
from nodeagent.update.ports import events
from nodeagent.update.ports.events import UpdateEvent
from nodeagent.update.states import Phase

# Items of each list. An update has about ten phases and a dozen steps; a host that keeps losing its power has more.
MAX_PHASES, MAX_STEPS, MAX_WAITS, MAX_BOOTS, MAX_CLOCK_STEPS = 60, 100, 40, 20, 8
# Points of the course of a pace. Of the points that are merged, the largest latency and the least cap remain.
MAX_SAMPLES: Final = 120
# Characters of one text.
MAX_TEXT: Final = 200
# Seconds by which the wall clock must move against CLOCK_BOOTTIME to count as set. Slewing moves it by 0.5 ms a second.
CLOCK_STEP: Final = 1.0


@dataclass(frozen=True, slots=True)
class Moment:
    """``at`` is the wall clock (RFC 3339), ``mono`` seconds of CLOCK_BOOTTIME in the boot ``boot_id``."""

    at: str
    boot_id: str
    mono: float


def fold(trail: Trail, event: UpdateEvent, now: Moment) -> Trail:
    """Return the trail after an event of the update."""
    trail = _timed(trail, now)
    match event:
        case events.PhaseEntered(about=about, message=message, reason=reason):
            last = trail.phases[-1] if trail.phases else None
            if last is None or last.name != about.phase or last.boot != len(trail.boots) - 1:
                # A staging reports the begin of each task, and no end of the last one.
                if about.phase in (Phase.LEASING, Phase.REBOOTING) and _phase(trail) == Phase.STAGING:
                    trail = _tasks_done(trail)
                return _entered(closed(trail, now), about.phase, reason, message, now)
            # The same phase: it reports what it waits for, or that the wait is over.
            waits = message and _text(message) != last.message
            return _waiting(trail, about.phase, reason, message, now) if waits else _waited(trail)
        case events.UpdateWaiting() | events.HostDegraded():
            # An update that is degraded while it is under way waits for a service of the host.
            return _waiting(trail, _phase(trail), event.reason, event.message, now)
        case events.StepEvent(about=about) if about.phase is Phase.WRITING:
            return replace(trail, writes=trail.writes + isinstance(event, events.StepDone))
        case events.StepStarted(step=step):
            return _step(_waited(trail), step.name, now)
        case events.StepDone(step=step):
            return _stepped(trail, step.name, Result.DONE, "", now)
        case events.StepSkipped(step=step, message=message):
            return _stepped(trail, step.name, Result.SKIPPED, message, now)
        case events.StepFailed(step=step, message=message):
            return _stepped(trail, step.name, Result.FAILED, message, now)
        case events.Warned(step=step, message=message) if step is not None and _open(trail.steps, step.name):
            return replace(trail, steps=(*trail.steps[:-1], replace(trail.steps[-1], message=_text(message))))
        case events.StagingAdvanced(step=step):
            return _task(trail, step.name, now)
        case _:
            pace = event.pace()
            if pace is None:
                return trail
            return replace(trail, fence=_sampled(trail.fence, pace, len(trail.boots) - 1, now))


def closed(trail: Trail, now: Moment) -> Trail:
    """Return the trail with an end for everything that has none: now, or when the agent was last alive in that boot."""
    trail = _timed(trail, now)
    phases = tuple(_ended(trail, span) for span in trail.phases)
    steps = tuple(_ended(trail, span, _implied(span)) for span in trail.steps)
    return replace(trail, phases=phases, steps=steps, waits=tuple(_ended(trail, span) for span in trail.waits))


def leaving(trail: Trail, now: Moment) -> Trail:
    """Return the trail after logind has accepted the reboot, which ends a wait for it."""
    trail = _waited(_timed(trail, now))
    return replace(trail, boots=(*trail.boots[:-1], replace(trail.boots[-1], accepted=_round(now.mono))))


def _timed(trail: Trail, now: Moment) -> Trail:
    """Return the trail with the boot of ``now``, and with a step of its wall clock."""
    mono = _round(now.mono)
    offset = _round(datetime.fromisoformat(now.at).timestamp() - now.mono)
    if not trail.boots or trail.boots[-1].id != now.boot_id:
        return _rebooted(trail, Boot(now.boot_id, mono, mono, offset))
    boot = trail.boots[-1]
    # A clock that goes back to its value of before has been set as well, so each reading is compared with the last one.
    moved, steps = offset - boot.offset, boot.clock_steps
    if abs(moved) >= CLOCK_STEP and len(steps) < MAX_CLOCK_STEPS:
        steps = (*steps, (mono, _round(moved)))
    return replace(trail, boots=(*trail.boots[:-1], replace(boot, last=mono, offset=offset, clock_steps=steps)))


def _rebooted(trail: Trail, boot: Boot) -> Trail:
    if len(trail.boots) < MAX_BOOTS:
        return replace(trail, boots=(*trail.boots, boot))
    # A boot from the middle leaves, with its spans. The first boots and the last ones explain more.
    gone = MAX_BOOTS // 2
    phases, steps, waits = (
        tuple(replace(span, boot=span.boot - (span.boot > gone)) for span in spans if span.boot != gone)
        for spans in (trail.phases, trail.steps, trail.waits)
    )
    fence = trail.fence
    if fence is not None:
        fence = None if fence.boot == gone else replace(fence, boot=fence.boot - (fence.boot > gone))
    boots = (*trail.boots[:gone], *trail.boots[gone + 1 :], boot)
    return replace(
        trail,
        boots=boots,
        phases=phases,
        steps=steps,
        waits=waits,
        fence=fence,
        omitted=trail.omitted + 1,
        omitted_boots=trail.omitted_boots + 1,
    )


def _entered(trail: Trail, phase: Phase, reason: str, message: str, now: Moment) -> Trail:
    span = Span(str(phase), now.at, len(trail.boots) - 1, _round(now.mono), reason=reason, message=_text(message))
    phases, omitted = _added(trail.phases, span, MAX_PHASES)
    return replace(trail, phases=phases, omitted=trail.omitted + omitted)


def _waiting(trail: Trail, phase: str, reason: str, message: str, now: Moment) -> Trail:
    text = _text(message)
    if trail.waits and trail.waits[-1].seconds is None and trail.waits[-1].message == text:
        return trail
    trail = _waited(trail)
    span = Span("", now.at, len(trail.boots) - 1, _round(now.mono), reason=reason, message=text, phase=phase)
    waits, omitted = _added(trail.waits, span, MAX_WAITS)
    return replace(trail, waits=waits, omitted=trail.omitted + omitted)


def _waited(trail: Trail) -> Trail:
    """Return the trail with an end for the wait, if there is one."""
    if not trail.waits or trail.waits[-1].seconds is not None:
        return trail
    return replace(trail, waits=(*trail.waits[:-1], _ended(trail, trail.waits[-1])))


def _step(trail: Trail, name: str, now: Moment) -> Trail:
    if trail.steps:
        last = trail.steps[-1]
        trail = replace(trail, steps=(*trail.steps[:-1], _ended(trail, last, _implied(last))))
    span = Span(_text(name), now.at, len(trail.boots) - 1, _round(now.mono), phase=_phase(trail))
    steps, omitted = _added(trail.steps, span, MAX_STEPS)
    return replace(trail, steps=steps, omitted=trail.omitted + omitted)


def _stepped(trail: Trail, name: str, result: str, message: str, now: Moment) -> Trail:
    # A step that had nothing to do did not start.
    trail = _waited(trail) if _open(trail.steps, name) else _step(trail, name, now)
    last = trail.steps[-1]
    return replace(
        trail, steps=(*trail.steps[:-1], _ended(trail, replace(last, message=_text(message or last.message)), result))
    )


def _task(trail: Trail, name: str, now: Moment) -> Trail:
    """Return the trail after progress of a staging, which reports the beginning of each task only."""
    if not name or _open(trail.steps, name):
        return trail
    return _step(_waited(_tasks_done(trail)), name, now)


def _tasks_done(trail: Trail) -> Trail:
    if not trail.steps or trail.steps[-1].seconds is not None:
        return trail
    return replace(trail, steps=(*trail.steps[:-1], _ended(trail, trail.steps[-1], Result.DONE)))


def _sampled(fence: PaceTrail | None, pace: StagingPace, boot: int, now: Moment) -> PaceTrail | None:
    if not pace.active and fence is None:
        return None
    if fence is None or fence.boot != boot:
        # A staging that is repeated after a boot has a course of its own.
        fence = PaceTrail(boot, _round(now.mono))
    seconds = _round(now.mono - fence.mono)
    p99 = None if pace.p99 is None else round(pace.p99 * 1000, 1)
    sample: Sample = (seconds, pace.limit if pace.active else None, p99)
    every = fence.every
    samples = _thinned((*fence.samples, sample), every)
    while len(samples) > MAX_SAMPLES:
        every *= 2
        samples = _thinned(samples, every)
    return replace(
        fence,
        seconds=seconds,
        throttled=_round(pace.throttled),
        exceedances=pace.exceedances,
        source=pace.source or fence.source,
        every=every,
        samples=samples,
    )


def _thinned(samples: tuple[Sample, ...], every: float) -> tuple[Sample, ...]:
    thin: list[Sample] = []
    for sample in samples:
        if thin and int(sample[0] / every) == int(thin[-1][0] / every):
            thin[-1] = _merged(thin[-1], sample)
        else:
            thin.append(sample)
    return tuple(thin)


def _merged(first: Sample, other: Sample) -> Sample:
    # The tightest cap and the worst latency of an interval explain an update; their mean would hide both.
    caps = [cap for cap in (first[1], other[1]) if cap is not None]
    delays = [delay for delay in (first[2], other[2]) if delay is not None]
    return first[0], min(caps, default=None), max(delays, default=None)


def _ended(trail: Trail, span: Span, result: str = Result.NONE) -> Span:
    """Return the span with an end, at the last sign of life in its boot. One that has ended keeps its end."""
    if span.seconds is not None:
        return span
    seconds = max(0.0, _round(trail.boots[span.boot].last - span.mono))
    return replace(span, seconds=seconds, result=result or span.result)


def _implied(span: Span) -> str:
    """Return the result of a step without a reported one. A step that is skipped after a warning ends like that."""
    return span.result or (Result.SKIPPED if span.message else Result.NONE)


def _open(steps: tuple[Span, ...], name: str) -> bool:
    return bool(steps) and steps[-1].seconds is None and steps[-1].name == _text(name)


def _phase(trail: Trail) -> str:
    return trail.phases[-1].name if trail.phases else ""


T = TypeVar("T")


def _added(items: tuple[T, ...], item: T, limit: int) -> tuple[tuple[T, ...], int]:
    """Return the items with one more, without one from the middle if there are too many; and how many left."""
    if len(items) < limit:
        return (*items, item), 0
    return (*items[: limit // 2], *items[limit // 2 + 1 :], item), 1


def _text(value: str) -> str:
    return value if len(value) <= MAX_TEXT else value[: MAX_TEXT - 1] + "…"


def _round(seconds: float) -> float:
    return round(seconds, 3)
