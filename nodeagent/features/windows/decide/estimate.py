# SPDX-License-Identifier: Apache-2.0
"""How long the disruptive part of an update will take, from the updates of this host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from math import ceil
from typing import Final

from nodeagent.core.plan.change import USERSPACE
from nodeagent.update.history.outcome import VERIFIED
from nodeagent.update.history.trail import Trail, gap_before, trail_from_dict
from nodeagent.update.ports.store import HistoryEntry
from nodeagent.update.states import Phase

# Updates of a kind of work, of which the slowest counts.
LAST: Final = 5
# What is added to the slowest one: this part of it, at least a minute.
MARGIN: Final = 0.25
LEAST_MARGIN: Final = timedelta(minutes=1)
# No estimate is longer: a host that was off for a day within an update is no rule.
LONGEST: Final = timedelta(hours=12)


class Work(StrEnum):
    """What an update does to a host. The values are keys of JSON."""

    # Also files alone, and reloads.
    RESTART = "restart"
    DRAIN = "drain"
    REBOOT = "reboot"
    # A reboot into another deployment.
    OS = "os"


# Without an update of the same work: a service that starts slowly; a drain with a disruption budget; the same and a
# server that boots for ten minutes; the same and the first boot of another OS.
EXPECTED: Final[Mapping[Work, timedelta]] = {
    Work.RESTART: timedelta(minutes=5),
    Work.DRAIN: timedelta(minutes=20),
    Work.REBOOT: timedelta(minutes=30),
    Work.OS: timedelta(minutes=45),
}


@dataclass(frozen=True, slots=True)
class Estimate:
    """``needed`` has the margin. ``slowest`` is of ``updates`` similar ones; without any, it is ``EXPECTED``."""

    work: Work
    needed: timedelta
    slowest: timedelta
    updates: int = 0

    def __str__(self) -> str:
        if not self.updates:
            return f"without a similar update yet, {in_words(self.needed)} are expected"
        return f"similar updates took {in_words(self.slowest)}, {in_words(self.needed)} with a margin"


def work_of(disruption: str, *, changes_os: bool) -> Work:
    """``disruption`` is a word of ``core.plan.plan.DISRUPTION_WORDS``."""
    match disruption:
        case "reboot":
            return Work.OS if changes_os else Work.REBOOT
        case "drain":
            return Work.DRAIN
        case _:
            return Work.RESTART


def estimate(entries: Iterable[HistoryEntry], work: Work) -> Estimate:
    """``entries`` are those of the history, newest first. Only updates whose config took effect count."""
    lengths: list[timedelta] = []
    for entry in entries:
        if entry.outcome in VERIFIED and _work_of_entry(entry) is work:
            seconds = disruptive_seconds(trail_from_dict(entry.trail))
            # Old entries have no trail any more.
            lengths += [min(timedelta(seconds=seconds), LONGEST)] if seconds is not None else []
        if len(lengths) == LAST:
            break
    if not lengths:
        return Estimate(work, EXPECTED[work], EXPECTED[work])
    slowest = max(lengths)
    return Estimate(work, slowest + max(slowest * MARGIN, LEAST_MARGIN), slowest, len(lengths))


def _work_of_entry(entry: HistoryEntry) -> Work:
    # The entry has the plan as JSON of any version, so only what every version has is read.
    changes = entry.plan.get("changes", ())
    domains = {change.get("domain") for change in changes if isinstance(change, Mapping)}
    return work_of(entry.disruption, changes_os=bool(entry.plan.get("os") or domains - USERSPACE))


def disruptive_seconds(trail: Trail) -> float | None:
    """Return the seconds from the end of the last wait for a turn to the end; None if they are not known.

    The staging, and the wait for a window, a slot and a lease, disrupt nothing.
    """
    names = [phase.name for phase in trail.phases]
    if Phase.LEASING not in names or trail.omitted_boots:
        return None
    # An update that waited for its turn again begins to count again.
    after = len(names) - names[::-1].index(Phase.LEASING)
    if after == len(names):
        return None
    begin = trail.phases[after]
    seconds = trail.boots[begin.boot].last - begin.mono
    # The clock of each boot begins at zero. The time between two boots is known from the wall clock only.
    for index in range(begin.boot + 1, len(trail.boots)):
        seconds += (gap_before(trail, index) or 0.0) + trail.boots[index].last - trail.boots[index].seen
    return max(0.0, seconds)


def in_words(length: timedelta) -> str:
    """Return whole minutes, rounded up."""
    hours, minutes = divmod(ceil(length.total_seconds() / 60), 60)
    return f"{minutes} min" if not hours else f"{hours} h {minutes} min" if minutes else f"{hours} h"
