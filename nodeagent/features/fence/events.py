# SPDX-License-Identifier: Apache-2.0
"""The event of the fence, and its view."""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.core.syslog import DEBUG, INFO
from nodeagent.features.fence.decide.view import FenceView
from nodeagent.features.fence.status import FenceCounts
from nodeagent.report.counters import Counters
from nodeagent.report.event_view import EventView
from nodeagent.report.status import Status
from nodeagent.update.history.trail import StagingPace
from nodeagent.update.ports.events import UpdateEvent


@dataclass(frozen=True, slots=True)
class FenceChanged(UpdateEvent):
    """``view`` None: the fence has ended. Without a ``message`` only numbers changed."""

    view: FenceView | None
    message: str = ""
    reason: str = ""
    routine: bool = False

    def pace(self) -> StagingPace | None:
        view = self.view
        if view is None:
            return None
        return StagingPace(view.active, view.write_bps, view.p99, view.throttled, view.exceedances, view.source)


def _level(event: FenceChanged) -> int | None:
    # The fence samples every second. Samples without a message are for the status and the metrics only.
    if not event.message:
        return None
    return DEBUG if event.routine else INFO


def _changed(status: Status, event: FenceChanged) -> Status:
    return status.without_part(FenceView) if event.view is None else status.with_part(event.view)


def _count(event: FenceChanged, _status: Status, counters: Counters) -> None:
    counters.part(FenceCounts).add(event.view)


VIEWS = (
    EventView(
        event=FenceChanged,
        id="f2bcee58086f48db9efe15966b0e74de",
        priority=INFO,
        level=_level,
        sentence=lambda event, _: f"fence: {event.message}",
        fold=_changed,
        count=_count,
    ),
)
