"""The only writer of status. Every event goes through here, and everything that tells something is a sink of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nodeagent import log
from nodeagent.core.report.display import displayable
from nodeagent.core.report.status import Status, StatusProblem, fold
from nodeagent.core.update.events import Event, EventKind
from nodeagent.core.update.ports.coordination import Holder
from nodeagent.errors import AgentError, full_text
from nodeagent.reasons import Reason

__all__ = ["Report", "Sink"]

Sink = Callable[[Event, Status], None]


class Report:
    """Fulfils ``ports.Reporter``. Words that others have chosen are made harmless here, for all sinks and the status.
    A sink must not block. One that raises has a bug, which is logged once and harms
    neither the update nor the other sinks."""

    def __init__(self, status: Status) -> None:
        self.status = status
        self._sinks: list[Sink] = []
        self._broken: set[Sink] = set()

    def add(self, sink: Sink) -> None:
        self._sinks.append(sink)

    def emit(self, event: Event) -> None:
        event = displayable(event)
        self.status = fold(self.status, event)
        for sink in self._sinks:
            try:
                sink(event, self.status)
            except Exception as error:  # noqa: BLE001 - text from outside reaches sinks, and they only display it
                if sink not in self._broken:
                    self._broken.add(sink)
                    words = f"an event could not be reported: {type(error).__name__}: {error}"
                    log.get(__name__).error(words, reason=Reason.INTERNAL_ERROR, exc_info=error)

    def problem(self, topic: str, error: AgentError) -> None:
        """Reports what an admin has to put right while the agent goes on; once, until it changes."""
        text = full_text(error, 5)
        found = displayable(StatusProblem(topic, error.reason, text))
        if found not in self.status.problems:
            self.emit(Event(EventKind.WARNING, self.status.phase, text, error.reason, fields={"problem": found}))

    def lease(self, holder: Holder | None) -> None:
        """Report who holds the node lease, if that changed."""
        holder, before = displayable(holder), self.status.lease
        if holder != before:
            renewed = holder is not None and before is not None and replace(holder, expires=before.expires) == before
            fields = {"holder": holder, "often": renewed}
            self.emit(Event(EventKind.LEASE, self.status.phase, fields=fields))

    def solved(self, topic: str, message: str) -> None:
        """``topic`` is no problem any more, if it was one."""
        if any(found.topic == topic for found in self.status.problems):
            fields = {"problem": StatusProblem(topic, "", ""), "solved": 1}
            self.emit(Event(EventKind.WARNING, self.status.phase, message, fields=fields))
