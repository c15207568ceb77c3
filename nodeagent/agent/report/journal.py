# SPDX-License-Identifier: Apache-2.0
"""The sinks of events for the journal and for systemd's ``STATUS=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nodeagent import log
from nodeagent.agent.report.report import Sink
from nodeagent.report.status import Status
from nodeagent.report.status_line import line
from nodeagent.report.views.registry import view_of
from nodeagent.update.ports.events import Event, PhaseEntered, StepProgress, UpdateContext, UpdateEvent


def to_journal(event: Event, status: Status) -> None:
    """Log the event, if its kind has an entry for it."""
    view = view_of(event)
    priority = view.level_of(event)
    if priority is None:
        return
    about = event.about if isinstance(event, UpdateEvent) else UpdateContext(status.phase)
    if isinstance(event, PhaseEntered):
        log.change_context(phase=str(about.phase))
    step: StepProgress | None = getattr(event, "step", None)
    fields: dict[str, Any] = {
        "phase": str(about.phase),
        "reason": getattr(event, "reason", ""),
        "update_id": about.update_id,
        "current": about.current,
        "desired": about.desired,
    }
    if step is not None:
        counts = {"index": step.index, "count": step.count, "percent": step.percent}
        fields |= {"step": step.name, **counts, "step_id": step.id}
    log.event(view.id, view.sentence(event, status), priority=priority, **{**fields, **view.fields(event, status)})


def to_notify(notify: Callable[[str], None]) -> Sink:
    """Return a sink that calls ``notify`` with the status in one line."""

    def sink(_event: Event, status: Status) -> None:
        notify(line(status))

    return sink
