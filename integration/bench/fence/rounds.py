# SPDX-License-Identifier: Apache-2.0
"""Runs the rounds: idle, and each variant once, in another order each time. Prints nothing, decides nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from integration.bench.fence.source import Source
from integration.bench.fence.testbed import Mark, Testbed
from integration.bench.fence.variants import Variant

__all__ = ["Phase", "order", "run"]

SETTLE = 5.0  # seconds on the slow disk before anything counts
LEAD = 1.0  # seconds before it: its limits are set; that the fence first measures the idle disk does not count
TAIL = 2.0  # seconds after a staging that still belong to it: what it left to be written
# Seconds after it, and after its fence, in which an entry may be late for what it left: file systems write their own
# data each half a minute. A fence stays longer than the first.
AFTER, AFTER_FENCE = 45.0, 10.0
ASKED = 2.0  # Seconds around a request that do not count: the answer takes the only processor of the guest.


@dataclass(frozen=True, slots=True)
class Phase:
    """What happened from ``begin`` to ``end`` (seconds of the guest's clock). Entries are counted later."""

    variant: str
    round: int
    begin: float
    end: float
    staging: float | None  # seconds; None if nothing was staged
    written: int
    writes: int
    fence: Sequence[Mapping[str, Any]]  # what it did, if there was one
    etcd: tuple[Mapping[str, float], Mapping[str, float]]  # its counters before and after
    noise: Mapping[str, float]
    steps: Sequence[float] = ()  # when each commit was there
    pauses: Sequence[Mapping[str, Any]] = ()
    after: float | None = None  # until when entries may be late for what it left


def order(variants: Sequence[Variant], number: int) -> list[Variant]:
    """Idle first, the others turned by one each round, every other round backwards: none always follows another."""
    idle = [variant for variant in variants if not variant.stages]
    others = [variant for variant in variants if variant.stages]
    turn = number % len(others) if others else 0
    turned = others[turn:] + others[:turn]
    return idle + (turned[::-1] if number % 2 else turned)


def run(
    testbed: Testbed,
    source: Source,
    variants: Sequence[Variant],
    rounds: int,
    most: int,
    idle: float,
    done: Callable[[Phase], bool],
) -> None:
    """``idle``: seconds of a phase in which nothing is staged; ``done`` hears of each phase, and says whether it
    counts. Until each variant has as many that do as there are ``rounds``, but no more than ``most`` of each."""
    wanted = dict.fromkeys((variant.name for variant in variants), rounds)
    for number in range(max(rounds, most)):
        for variant in order(variants, number):
            if wanted[variant.name]:
                testbed.clean()
                time.sleep(SETTLE)
                wanted[variant.name] -= done(_phase(testbed, source, variant, number, idle))


def _phase(testbed: Testbed, source: Source, variant: Variant, number: int, idle: float) -> Phase:
    if not variant.stages:
        before = testbed.mark()
        time.sleep(idle + 2 * ASKED)
        after = testbed.mark()
        return _of(variant, number, before, after, {}, ())
    with testbed.prepared(variant, source.rounds[number % len(source.rounds)]):
        time.sleep(1.0)
        before = testbed.mark()
        time.sleep(ASKED)
        staged = testbed.stage(variant.fence, ASKED + (AFTER if variant.fence is None else AFTER_FENCE))
        after = testbed.mark()
    log = testbed.fence_log() if variant.fence is not None else ()
    pauses = testbed.pauses() if variant.pauses else ()
    return replace(_of(variant, number, before, after, staged, log, testbed.steps()), pauses=pauses)


def _of(
    variant: Variant,
    number: int,
    before: Mark,
    after: Mark,
    staged: Mapping[str, str],
    fence: Sequence[Mapping[str, Any]],
    steps: Sequence[float] = (),
) -> Phase:
    begin, end, ran, watched = before.at + ASKED, after.at - ASKED, None, None
    if staged:
        begun, ended = (int(staged[f"ExecMain{what}TimestampMonotonic"]) / 1e6 for what in ("Start", "Exit"))
        begin, end, ran, watched = begun - LEAD, ended + TAIL, ended - begun, end
    took, host_took = after.at - before.at, after.host_at - before.host_at
    stolen = after.host_stolen - before.host_stolen
    noise = {
        "host_loadavg": os.getloadavg()[0],
        # Of two threads at most: the processor of the guest, and the one of its disk.
        "host_waited": (after.host_waited - before.host_waited) / host_took,
        "host_stolen": stolen / (stolen + after.host_worked - before.host_worked or 1.0),
        "guest_cpu": (after.guest_busy - before.guest_busy) / took,
        "disk_busy": (after.disk_busy - before.disk_busy) / took,
    }
    written, writes = (int(staged.get(f"IOWrite{what}", 0)) for what in ("Bytes", "Operations"))
    etcd = (before.etcd, after.etcd)
    return Phase(variant.name, number, begin, end, ran, written, writes, fence, etcd, noise, steps, after=watched)
