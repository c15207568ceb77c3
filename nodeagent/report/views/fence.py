# SPDX-License-Identifier: Apache-2.0
"""The view of the event of the fence."""

from __future__ import annotations

from nodeagent.core.fence_view import FenceView
from nodeagent.core.syslog import DEBUG, INFO
from nodeagent.report.counters import Counters
from nodeagent.report.event_view import EventView
from nodeagent.report.parts.fence import FenceCounts
from nodeagent.report.status import Status
from nodeagent.update.ports.events import FenceChanged


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
