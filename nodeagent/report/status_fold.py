# SPDX-License-Identifier: Apache-2.0
"""The events folded into the status, one by one."""

from __future__ import annotations

from nodeagent.report.parts.registry import part_views
from nodeagent.report.status import Status
from nodeagent.report.views.registry import view_of
from nodeagent.update.ports.events import Event


def fold(status: Status, event: Event) -> Status:
    """Return the status after an event. An event without an update keeps the names of the last one."""
    folded = view_of(event).fold(status, event)
    for view in part_views() if folded.parts else ():
        part = folded.part(view.part)
        if part is not None and part is status.part(view.part) and not view.lasts(part, folded):
            folded = folded.without_part(view.part)
    return folded
