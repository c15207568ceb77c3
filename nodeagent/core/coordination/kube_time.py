# SPDX-License-Identifier: Apache-2.0
"""The two time formats of Kubernetes, and the clock of the API server.

The API server accepts a ``MicroTime`` with exactly six digits and answers any other with 400 (apimachinery,
micro_time.go). Holders of a lease are judged by its clock. The clock of this host may be wrong, so times that others
compare are written in the server's time: its ``Date`` header plus the steady clock of this host.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import isnan

from nodeagent.errors import Retryable
from nodeagent.reasons import Reason

# Seconds after which a bound expires: quartz drifts, at worst 0.1 s in this time.
MAX_AGE = 600.0


FIRST = datetime.min.replace(tzinfo=UTC).timestamp()

# The years 1 to 9999 of RFC 3339. Time and duration of a Lease may add up to more.
LAST = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()


def micro_time(epoch: float) -> str:
    """Format a ``MicroTime``. A time outside the years 1 to 9999 becomes the nearest one inside."""
    return _utc(epoch).isoformat(timespec="microseconds") + "Z"


def seconds_time(epoch: float) -> str:
    """Format a ``Time``, which has no fractions; limited as ``micro_time``."""
    return _utc(epoch).isoformat(timespec="seconds") + "Z"


def _utc(epoch: float) -> datetime:
    epoch = FIRST if isnan(epoch) else min(max(epoch, FIRST), LAST)
    return datetime.fromtimestamp(epoch, UTC).replace(tzinfo=None)


def parse_time(text: str) -> float | None:
    """Return the seconds since the epoch of an RFC 3339 time; None for another text, and without an offset."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def http_date(header: str) -> float | None:
    """Return the seconds since the epoch of a ``Date`` header (RFC 9110, 5.6.7); None for another text."""
    try:
        # The names of days and months are those of the C locale, because the agent sets no other.
        return datetime.strptime(header, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


class Uncertain(Retryable):
    """No answer of the server had a ``Date`` header yet."""

    default_reason = Reason.KUBE_NO_DATE

    def __init__(self) -> None:
        super().__init__("the API server sends no time (no Date header)")


@dataclass(frozen=True, slots=True)
class ServerClock:
    """Bounds of the server's epoch minus the steady clock, in seconds. ``updated`` returns the next value."""

    low: float = 0.0
    high: float = 0.0
    # Steady time of the last answer.
    at: float | None = None

    def updated(self, date: float, sent: float, received: float) -> ServerClock:
        """``date`` is cut to whole seconds and was read between ``sent`` and ``received`` on the steady clock."""
        # The header was cut to the second below, so the time was up to a second later than it says.
        low, high = date - received, date + 1.0 - sent
        if self.at is not None and received - self.at <= MAX_AGE:
            narrow = max(low, self.low), min(high, self.high)
            if narrow[0] <= narrow[1]:
                return ServerClock(*narrow, received)
            # No offset fits both: the clock was set, or another server behind the address answers. The new one counts.
        return ServerClock(low, high, received)

    def earliest(self, steady: float) -> float:
        """Return the lower bound of the server's time, for times that are written. Raises ``Uncertain``."""
        if self.at is None:
            raise Uncertain
        return self.low + steady

    def latest(self, steady: float) -> float:
        """Return the upper bound of the server's time. Raises ``Uncertain``."""
        if self.at is None:
            raise Uncertain
        return self.high + steady
