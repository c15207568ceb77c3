# SPDX-License-Identifier: Apache-2.0
"""The state of the I/O fence for operators, and a summary of one update."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MS = 1000

# Samples below which there is no p99; up to a hundred samples it is the largest of them.
_LEAST = 50


@dataclass(frozen=True, slots=True)
class FenceView:
    """If ``active`` is false, nothing is limited, and ``message`` has the cause. Times are seconds."""

    active: bool
    # A word of ``controller.LimitCause``, or the reason of the error that prevents the fence.
    reason: str = ""
    message: str = ""
    # The cap; None: no cap. If writes are counted, the bytes that they amount to.
    write_bps: int | None = None
    write_iops: int | None = None
    # p99 of the recent fsyncs of etcd; None: unknown, or too few.
    p99: float | None = None
    # Fsyncs of etcd over 100 ms (128 ms according to etcd's histogram), since the beginning.
    exceedances: int = 0
    # Time under a cap, since the beginning.
    throttled: float = 0.0
    # Time since the beginning.
    seconds: float = 0.0
    # The last source of the latency, a word of ``signals.Source``; "" for none.
    source: str = ""
    # Messages about facilities that the fence lacks.
    missing: tuple[str, ...] = ()

    @property
    def capped(self) -> bool:
        return self.active and self.write_bps is not None

    def to_dict(self) -> Mapping[str, Any]:
        """Return the object ``fence`` of ``status --json``."""
        return {
            "active": self.active,
            "write_bps": self.write_bps,
            "victim_p99_ms": None if self.p99 is None else round(self.p99 * _MS, 1),
            "write_iops": self.write_iops,
            "exceedances": self.exceedances,
            "throttled_seconds": round(self.throttled, 1),
            "seconds": round(self.seconds, 1),
            "reason": self.reason,
            "message": self.message,
            "source": self.source,
            "missing": list(self.missing),
        }


@dataclass(frozen=True, slots=True)
class FenceEvent:
    """A change of the fence. ``view`` None: it has ended. Without a ``message`` only numbers changed.

    ``routine``: logged at level debug. ``bad``: an operator has to act. ``etcd_disk`` is known at the end, see
    ``decide.disk_latency``.
    """

    view: FenceView | None
    message: str = ""
    reason: str = ""
    routine: bool = False
    bad: bool = False
    etcd_disk: Mapping[str, Any] | None = None


def quantile_of(latencies: Sequence[float], part: float) -> float | None:
    """Return a quantile in seconds by nearest rank, so it is one of the samples. None if there are too few."""
    if len(latencies) < _LEAST:
        return None
    return sorted(latencies)[math.ceil(part * len(latencies)) - 1]


def summary(view: FenceView) -> str:
    """Describe a fence that has ended."""
    p99 = "" if view.p99 is None else f", p99 at the end {view.p99 * _MS:.1f} ms"
    return (
        f"active for {view.seconds:.0f} s, writes capped for {view.throttled:.0f} s, "
        f"{view.exceedances} fsyncs of etcd over 100 ms{p99}"
    )
