# SPDX-License-Identifier: Apache-2.0
"""Counters behind the metrics: ended updates from the history, the rest from events.

The history survives a restart, so its counters continue, and a reboot by an update is counted although the daemon was
down. The other counters start at zero with the daemon.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nodeagent.core.coordination.kube_time import parse_time
from nodeagent.update.history.outcome import ENDED_UNCHANGED
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.states import Phase

# Seconds of an update: from one that writes a single file to an OS image over a slow link.
BOUNDS = (1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 10800.0)


P = TypeVar("P")


@dataclass(slots=True)
class Counters:
    # From the history.
    # By outcome.
    updates: Counter[str] = field(default_factory=Counter)
    # Number of updates by the first bound that is not exceeded.
    lengths: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0
    reboots: int = 0
    avoided: int = 0
    fallbacks: int = 0
    soft_reboots: int = 0
    # Epoch of the last end.
    ended: float | None = None

    # From the events.
    # By reason.
    refused: Counter[str] = field(default_factory=Counter)
    # Waits by phase and reason.
    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Seconds in each.
    phases: dict[Phase, float] = field(default_factory=dict)
    # Bytes of OS images.
    fetched: int = 0

    _phase: Phase | None = None
    _since: float = 0.0
    _fetching: int = 0
    _newest: HistoryEntry | None = None
    _read: bool = False
    _parts: dict[type[Any], Any] = field(default_factory=dict)

    def part(self, kind: type[P]) -> P:
        """Return the counters of a feature, which start with the values of ``kind()``."""
        if kind not in self._parts:
            self._parts[kind] = kind()
        counts: P = self._parts[kind]
        return counts

    def enter(self, phase: Phase, at: float) -> None:
        """Count the time until ``at``, in seconds on a monotonic clock, for the phase that ends, if another begins."""
        if phase is not self._phase:
            # Time before the start of the daemon does not count.
            if self._phase is not None:
                self.phases[self._phase] = self.phases.get(self._phase, 0.0) + at - self._since
            self._phase, self._since, self._fetching = phase, at, 0

    def fetch(self, progress: int) -> None:
        """Count bytes of an OS image. ``progress`` counts up within one attempt and begins at zero with the next."""
        self.fetched += progress - self._fetching if progress >= self._fetching else progress
        self._fetching = progress

    def load_history(self, history: Sequence[HistoryEntry], limit: int, under_way: str = "") -> None:
        """Count the new entries of the history, which is newest first and has at most ``limit`` entries.

        An entry of the update ``under_way`` counts later: it is stored before the status shows its end.
        """
        entries = [entry for entry in history if entry.update_id != under_way]
        fresh: list[HistoryEntry] = []
        for entry in entries:
            if entry == self._newest:
                break
            fresh.append(entry)
        # If the history is full at the start, older entries are unknown, so counting starts at zero: Prometheus takes a
        # counter that decreased for one that restarted, and counts all of its value again.
        if self._read or len(history) < limit:
            for entry in reversed(fresh):
                self._count(entry)
        self._read = True
        if entries:
            self._newest = entries[0]
            self.ended = parse_time(entries[0].finished)

    def _count(self, entry: HistoryEntry) -> None:
        self.updates[entry.outcome] += 1
        if entry.outcome in ENDED_UNCHANGED:
            # The duration of an aborted update is mostly waiting time.
            return
        self.lengths[bisect_left(BOUNDS, entry.seconds)] += 1
        self.seconds += entry.seconds
        self.reboots += entry.reboots
        self.avoided += entry.reboot_avoided
        self.soft_reboots += entry.soft_reboots
        self.fallbacks += entry.fallback or entry.outcome == "done-after-fallback"
