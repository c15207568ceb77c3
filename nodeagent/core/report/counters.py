"""Counters behind the metrics: ended updates from the history, the rest from events.

The history survives a restart, so its counters continue, and a reboot by an update is counted although the daemon was
down. The other counters start at zero with the daemon.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.core.report.status import Status
from nodeagent.core.update.events import Event, EventKind
from nodeagent.core.update.fence_view import FenceView
from nodeagent.core.update.outcome import ENDED_UNCHANGED
from nodeagent.core.update.phase import Phase
from nodeagent.core.update.ports.store import HistoryEntry

__all__ = ["BOUNDS", "Counters"]

BOUNDS = (1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 10800.0)
"""Seconds of an update: from one that writes a single file to an OS image over a slow link."""


@dataclass(slots=True)
class Counters:
    # From the history.
    updates: Counter[str] = field(default_factory=Counter)  # by outcome
    lengths: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))  # by the first bound that fits
    seconds: float = 0.0
    reboots: int = 0
    avoided: int = 0
    fallbacks: int = 0
    ended: float | None = None  # epoch of the last end

    # From the events.
    refused: Counter[str] = field(default_factory=Counter)  # by reason
    waits: Counter[tuple[str, str]] = field(default_factory=Counter)  # by phase and reason
    phases: dict[Phase, float] = field(default_factory=dict)  # seconds in each
    fetched: int = 0  # bytes of OS images
    throttled: float = 0.0  # seconds that staging was under a cap
    slow_fsyncs: int = 0  # of the victim, while there was a fence

    _phase: Phase | None = None
    _since: float = 0.0
    _fetching: int = 0
    _fence: FenceView | None = None
    _newest: HistoryEntry | None = None
    _read: bool = False

    def observe(self, event: Event, status: Status, at: float) -> None:
        """Count an event. ``status`` is the status after it, ``at`` the time in seconds on a monotonic clock."""
        if status.phase is not self._phase:
            if self._phase is not None:  # time before the start of the daemon does not count
                self.phases[self._phase] = self.phases.get(self._phase, 0.0) + at - self._since
            self._phase, self._since, self._fetching = status.phase, at, 0
        if event.kind is EventKind.REFUSED and not event.fields.get("often"):
            self.refused[event.reason] += 1
        elif event.kind is EventKind.WAITING:
            self.waits[str(event.phase), event.reason] += 1
        elif event.kind is EventKind.STAGING and isinstance(now := event.fields.get("fetched_bytes"), int):
            # It counts up, and from nought again with each try.
            self.fetched += now - self._fetching if now >= self._fetching else now
            self._fetching = now
        elif event.kind is EventKind.FENCE:
            self._fenced(status.fence)

    def read(self, entries: Sequence[HistoryEntry], limit: int) -> None:
        """Count the new entries of the history, which is newest first and has at most ``limit`` entries.

        If it is full at the start, older entries are unknown, so counting starts at zero: Prometheus takes a counter
        that decreased for one that restarted, and counts all of its value again.
        """
        fresh: list[HistoryEntry] = []
        for entry in entries:
            if entry == self._newest:
                break
            fresh.append(entry)
        if self._read or len(entries) < limit:
            for entry in reversed(fresh):
                self._count(entry)
        self._read = True
        if entries:
            self._newest = entries[0]
            self.ended = parse_time(entries[0].finished)

    def _fenced(self, view: FenceView | None) -> None:
        """Add the counts of a fence, which start at zero with each fence."""
        if view is not None:
            before = (
                self._fence if self._fence is not None and self._fence.seconds <= view.seconds else FenceView(False)
            )
            self.throttled += max(0.0, view.throttled - before.throttled)
            self.slow_fsyncs += max(0, view.exceedances - before.exceedances)
        self._fence = view

    def _count(self, entry: HistoryEntry) -> None:
        self.updates[entry.outcome] += 1
        if entry.outcome in ENDED_UNCHANGED:
            return  # how long it waited says nothing about how long updates take
        self.lengths[bisect_left(BOUNDS, entry.seconds)] += 1
        self.seconds += entry.seconds
        self.reboots += entry.reboots
        self.avoided += entry.reboot_avoided
        self.fallbacks += entry.fallback or entry.outcome == "done-after-fallback"
