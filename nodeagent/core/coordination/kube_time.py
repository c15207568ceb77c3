"""Kubernetes' two forms of a time, and the API server's clock as its answers tell it.

``MicroTime`` is parsed by the API server with exactly six digits; any other number of them is an error 400
(apimachinery, micro_time.go). The server's clock is what the holders of a lease are judged by: ours may be wrong, so
times that others compare are written in the server's time, counted on from its ``Date`` headers by a clock that
nobody sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import isnan

__all__ = ["ServerClock", "Uncertain", "http_date", "micro_time", "parse_time", "seconds_time"]

MAX_AGE = 600.0
"""Seconds after which an old bound is not trusted any more: quartz drifts, at worst 0.1 s in this time."""


FIRST = datetime.min.replace(tzinfo=UTC).timestamp()
LAST = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()
"""The years 1 to 9999, which RFC 3339 can write. A Lease that others wrote may hold a time plus a duration beyond."""


def micro_time(epoch: float) -> str:
    """A time outside the years 1 to 9999 becomes the nearest one inside."""
    return _utc(epoch).isoformat(timespec="microseconds") + "Z"


def seconds_time(epoch: float) -> str:
    """The form of ``Time``, which has no fractions; limited as ``micro_time``."""
    return _utc(epoch).isoformat(timespec="seconds") + "Z"


def _utc(epoch: float) -> datetime:
    epoch = FIRST if isnan(epoch) else min(max(epoch, FIRST), LAST)
    return datetime.fromtimestamp(epoch, UTC).replace(tzinfo=None)


def parse_time(text: str) -> float | None:
    """Seconds since the epoch of any RFC 3339 time; None if it is not one, or without an offset. Never raises."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def http_date(header: str) -> float | None:
    """Seconds since the epoch of a ``Date`` header as it is sent today (RFC 9110, 5.6.7); None if it is no such
    date."""
    try:
        return datetime.strptime(header, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


class Uncertain(Exception):
    """No answer of the server has told its time yet."""


@dataclass(frozen=True, slots=True)
class ServerClock:
    """Bounds of (server's epoch - our steady clock), in seconds. A value: ``told`` gives the next one."""

    low: float = 0.0
    high: float = 0.0
    at: float | None = None  # steady time of the last answer

    def told(self, date: float, sent: float, received: float) -> ServerClock:
        """``date`` is in whole seconds, cut, and was read between ``sent`` and ``received`` (steady clock)."""
        low, high = date - received, date + 1.0 - sent
        if self.at is not None and received - self.at <= MAX_AGE:
            narrow = max(low, self.low), min(high, self.high)
            if narrow[0] <= narrow[1]:
                return ServerClock(*narrow, received)
            # No offset fits both: the clock was set, or another server behind the same address answers. The newer
            # counts.
        return ServerClock(low, high, received)

    def earliest(self, steady: float) -> float:
        """The server's time at least: what we write must not be ahead of it. Raises ``Uncertain``."""
        if self.at is None:
            raise Uncertain
        return self.low + steady

    def latest(self, steady: float) -> float:
        """The server's time at most. Raises ``Uncertain``."""
        if self.at is None:
            raise Uncertain
        return self.high + steady
