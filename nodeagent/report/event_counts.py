# SPDX-License-Identifier: Apache-2.0
"""The events counted, one by one."""

from __future__ import annotations

from nodeagent.report.counters import Counters
from nodeagent.report.status import Status
from nodeagent.report.views.registry import view_of
from nodeagent.update.ports.events import Event


def observe(counters: Counters, event: Event, status: Status, at: float) -> None:
    """Count an event. ``status`` is the status after it, ``at`` the time in seconds on a monotonic clock."""
    counters.enter(status.phase, at)
    view_of(event).count(event, status, counters)
