"""Reporting that an update, or a request for one, has ended: one event, from which the bus makes ``UpdateFinished``."""

from __future__ import annotations

from nodeagent.agent.context import Ports
from nodeagent.core.events import Event, EventKind
from nodeagent.core.outcome import exit_code
from nodeagent.core.phase import Phase
from nodeagent.core.ports import HistoryEntry

__all__ = ["finish"]


def finish(ports: Ports, entry: HistoryEntry, phase: Phase, *, code: int | None = None) -> None:
    """``code`` is the exit status, where the error that ended it knows better than the outcome."""
    code = exit_code(entry.outcome, entry.reason) if code is None else code
    ports.reporter.emit(
        Event(
            EventKind.UPDATE_FINISHED,
            phase,
            entry.message,
            entry.reason,
            update_id=entry.update_id,
            current=entry.from_name,
            desired=entry.to_name,
            boot_id=ports.power.boot_id(),
            fields={"entry": entry, "outcome": str(entry.outcome), "digest": entry.to_digest, "exit_code": code},
        )
    )
