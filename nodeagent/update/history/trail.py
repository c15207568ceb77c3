# SPDX-License-Identifier: Apache-2.0
"""The trail: the course of one update over its boots. It is kept in the record, and in the history of the last updates.

Lengths are differences of CLOCK_BOOTTIME within one boot. The wall clock is kept beside it, so that a clock that is set
during the update is noticed. Each list is bounded: the first and the last items are kept, ``omitted`` counts the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from nodeagent import typed
from nodeagent.update.states import Phase

# Of times in seconds, and of rates in bytes per second.
LARGEST: Final = 1e15


class Result:
    """The values of ``Span.result``."""

    # Under way, or interrupted by a crash.
    NONE = ""
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Boot:
    """A boot in which the update was under way. All but ``id`` are seconds of CLOCK_BOOTTIME, or differences of them.

    ``offset`` is the Unix time of the wall clock less CLOCK_BOOTTIME when it was read last. ``accepted`` is the time at
    which logind accepted a reboot. ``clock_steps`` are pairs: when a change of the wall clock was noticed, and by how
    many seconds.
    """

    # CLOCK_MONOTONIC, the steady clock of Python, stops while a host is suspended.
    id: str
    seen: float
    last: float
    offset: float
    accepted: float | None = None
    clock_steps: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A phase, a step or a wait. ``boot`` is an index of ``Trail.boots``; ``seconds`` None: it has not ended."""

    name: str
    at: str
    boot: int
    mono: float
    seconds: float | None = None
    result: str = Result.NONE
    reason: str = ""
    message: str = ""
    # The phase of a step or a wait.
    phase: str = ""


# Seconds since the beginning, bytes/s and p99 in milliseconds; None: no cap, or not known.
Sample = tuple[float, int | None, float | None]


@dataclass(frozen=True, slots=True)
class StagingPace:
    """How fast a staging may write now, and what is known about the disk. ``limit`` is in bytes/s; None: no cap.

    ``p99`` is that of etcd's fsyncs in seconds. ``throttled`` is the time under a cap, ``exceedances`` the number of
    slow fsyncs, both since the beginning.
    """

    active: bool
    limit: int | None
    p99: float | None
    throttled: float
    exceedances: int
    source: str


@dataclass(frozen=True, slots=True)
class PaceTrail:
    """The course of the pace of a staging. ``every`` is the distance of two samples in seconds."""

    boot: int
    mono: float
    seconds: float = 0.0
    throttled: float = 0.0
    exceedances: int = 0
    source: str = ""
    every: float = 1.0
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True)
class Trail:
    boots: tuple[Boot, ...] = ()
    phases: tuple[Span, ...] = ()
    steps: tuple[Span, ...] = ()
    waits: tuple[Span, ...] = ()
    # Files, units and passwords that were written.
    writes: int = 0
    # Of the last staging that had a pace.
    fence: PaceTrail | None = None
    # Items that were left out because there were too many.
    omitted: int = 0
    # Of these, the boots.
    omitted_boots: int = 0


def boots_during(trail: Trail) -> int:
    """Return how many boots there were during the update, as far as the agent ran in them."""
    return max(0, len(trail.boots) - 1 + trail.omitted_boots)


def trail_to_dict(trail: Trail) -> dict[str, Any]:
    """Return the object ``trail`` of the history, as JSON data; {} for a trail without a phase."""
    fields: dict[str, Any] = msgspec.to_builtins(trail)
    return fields if trail.phases else {}


def trail_from_dict(data: object) -> Trail:
    """Return the trail in ``data``, an empty one for anything else: no update depends on it."""
    try:
        trail = typed.convert(data, Trail) if data else Trail()
    # The second one is for half of a surrogate pair in a key.
    except ValueError:
        return Trail()
    return trail if _is_sound(trail) else Trail()


def _is_sound(trail: Trail) -> bool:
    """Return whether all indexes are those of boots, and all numbers are within the bounds."""
    spans, fences = (*trail.phases, *trail.steps, *trail.waits), () if trail.fence is None else (trail.fence,)
    indexes = [each.boot for each in (*spans, *fences)]
    numbers = [number for boot in trail.boots for number in (boot.seen, boot.last, boot.offset, boot.accepted)]
    numbers += [number for boot in trail.boots for step in boot.clock_steps for number in step]
    numbers += [number for span in spans for number in (span.mono, span.seconds)]
    numbers += [number for fence in fences for number in (fence.mono, fence.seconds, fence.throttled, fence.every)]
    numbers += [number for fence in fences for sample in fence.samples for number in sample]
    # NaN is in no range.
    return all(0 <= index < max(1, len(trail.boots)) for index in indexes) and all(
        number is None or -LARGEST < number < LARGEST for number in numbers
    )


def gap_before(trail: Trail, boot: int) -> float | None:
    """Return the seconds from the last sign of life in the previous boot to the first one in ``boot``.

    None: the wall clock went back further than that, so the length is not known.
    """
    # Only the wall clock spans two boots. A change that was noticed later in ``boot`` is part of its offset.
    before, after = trail.boots[boot - 1], trail.boots[boot]
    seconds = after.offset + after.seen - before.offset - before.last
    return round(seconds, 3) if seconds >= 0 else None


def elapsed(trail: Trail) -> float | None:
    """Return the seconds from the first phase to the last sign of life; None for a trail without the beginning."""
    # A trail that could not be read after a boot has begun again.
    if not trail.phases or trail.phases[0].name not in (Phase.STAGING, Phase.LEASING):
        return None
    gaps = sum(gap_before(trail, index) or 0.0 for index in range(1, len(trail.boots)))
    lengths = sum(boot.last - boot.seen for boot in trail.boots)
    return round(gaps + lengths, 3)
