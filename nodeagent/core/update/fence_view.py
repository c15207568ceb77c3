"""What people are told of the fence: how it stands now, and what it did over a whole update."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["FenceTold", "FenceView", "fence_to_dict", "p50_of", "p99_of", "summary"]

_MS = 1000
_LEAST = 50
"""Samples below which a p99 is not given; up to a hundred it is the largest of them."""


@dataclass(frozen=True, slots=True)
class FenceView:
    """``active`` false: nothing is limited, and ``message`` says why. Times are seconds."""

    active: bool
    reason: str = ""
    """A word of ``controller.Why``; without a fence the reason of the error that keeps us from it."""
    message: str = ""
    write_bps: int | None = None
    """None: no cap. Where writes are counted, what that many of them make."""
    write_iops: int | None = None
    p99: float | None = None
    """Of the victim's fsyncs lately; None: nobody knows, or too few."""
    exceedances: int = 0
    """Fsyncs of the victim over 100 ms (128 ms, where etcd's histogram says it), since it began."""
    throttled: float = 0.0
    """Under a cap, since it began."""
    seconds: float = 0.0
    """Since it began."""
    source: str = ""
    """Who spoke for the victim last, a word of ``signals.Source``; "" for nobody."""
    missing: tuple[str, ...] = ()
    """What it has to do without, in words."""


@dataclass(frozen=True, slots=True)
class FenceTold:
    """What is said of it. ``view`` None: it is gone. No ``message``: only numbers changed. ``often``: not worth a line
    in the journal, except for who looks into it; ``bad``: somebody has to look."""

    view: FenceView | None
    message: str = ""
    reason: str = ""
    often: bool = False
    bad: bool = False


def p99_of(latencies: Sequence[float]) -> float | None:
    """Seconds, by nearest rank: one of them, not a guess between two. None if there are too few."""
    return _of(latencies, 0.99)


def p50_of(latencies: Sequence[float]) -> float | None:
    """As ``p99_of``."""
    return _of(latencies, 0.5)


def _of(latencies: Sequence[float], part: float) -> float | None:
    if len(latencies) < _LEAST:
        return None
    return sorted(latencies)[math.ceil(part * len(latencies)) - 1]


def summary(view: FenceView) -> str:
    """Of a fence that has ended."""
    p99 = "" if view.p99 is None else f", p99 of its fsyncs at the end {view.p99 * _MS:.1f} ms"
    return (
        f"up for {view.seconds:.0f} s, writes capped for {view.throttled:.0f} s of them, "
        f"{view.exceedances} slow fsyncs of the victim{p99}"
    )


def fence_to_dict(view: FenceView) -> Mapping[str, Any]:
    """As in ``status --json``."""
    return {
        "active": view.active,
        "write_bps": view.write_bps,
        "victim_p99_ms": None if view.p99 is None else round(view.p99 * _MS, 1),
        "write_iops": view.write_iops,
        "exceedances": view.exceedances,
        "throttled_seconds": round(view.throttled, 1),
        "seconds": round(view.seconds, 1),
        "reason": view.reason,
        "message": view.message,
        "source": view.source,
        "missing": list(view.missing),
    }
