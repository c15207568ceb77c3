"""The only writer of the status. Every event passes through it; journal, D-Bus, metrics and cluster are its sinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nodeagent import log
from nodeagent.core.report.display import displayable
from nodeagent.core.report.status import Status
from nodeagent.core.report.status_fold import fold
from nodeagent.core.update.events import Event, LeaseChanged, ProblemSolved, StatusProblem
from nodeagent.core.update.ports.coordination import Holder
from nodeagent.errors import AgentError, full_text
from nodeagent.reasons import Reason

Sink = Callable[[Event, Status], None]


class Report:
    """Implements ``ports.Reporter``. A sink must not block.

    Text from outside (names of pods, output of programs) is made safe to display here, for the status and all sinks. A
    sink that raises has a bug, which is logged once and affects neither the update nor the other sinks.
    """

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
                    text = f"an event could not be reported: {type(error).__name__}: {error}"
                    log.get(__name__).error(text, reason=Reason.INTERNAL_ERROR, exc_info=error)

    def problem(self, topic: str, error: AgentError) -> None:
        """Report a problem that an admin has to solve while the agent continues. The same problem is reported once."""
        found = displayable(StatusProblem(topic, error.reason, full_text(error, 5)))
        if found not in self.status.problems:
            self.emit(found)

    def lease(self, holder: Holder | None) -> None:
        """Report the holder of the node lease, if it changed."""
        holder, before = displayable(holder), self.status.lease
        if holder != before:
            # A renewal changes only the time of expiry. The status shows it, the journal does not.
            renewed = holder is not None and before is not None and replace(holder, expires=before.expires) == before
            self.emit(LeaseChanged(holder, renewed))

    def solved(self, topic: str, message: str) -> None:
        """Report that the problem of ``topic`` is solved, if there was one."""
        if any(found.topic == topic for found in self.status.problems):
            self.emit(ProblemSolved(topic, message))
