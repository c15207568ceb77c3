# SPDX-License-Identifier: Apache-2.0
"""The events folded into the status, one by one."""

from __future__ import annotations

from nodeagent.report.status import Status
from nodeagent.report.views.registry import view_of
from nodeagent.update.ports.events import Event


def fold(status: Status, event: Event) -> Status:
    """Return the status after an event. An event without an update keeps the names of the last one."""
    return view_of(event).fold(status, event)
