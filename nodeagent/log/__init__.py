"""What the agent says about itself: structlog, into the journal with all fields, or as lines on stderr.

The report tells the events of an update through ``event``; whatever else has to be said uses ``get(__name__)`` or the
standard ``logging`` (our libraries do), and ends in the same place. ``core.report.redact`` filters every entry last.

    log.setup(settings.log.level)
    log.event(EventKind.STEP_DONE, "restarted crio.service", update_id=..., step="restart crio.service", seconds=1.2)
    log.get(__name__).warning("no SELinux here", path="/etc")

Fields become ``NODEAGENT_<NAME>`` in the journal. Those of a phase or an update are always named update_id, phase,
step, step_id, index, count, percent, reason, current, desired, boot_id, seconds, unit, path, error.

Until ``setup``, warnings and errors go to stderr: that is what a command wants, whose stdout is data.
"""

from __future__ import annotations

import logging
from typing import Any

from nodeagent.core.hints import hint
from nodeagent.core.update.events import EventKind
from nodeagent.log.journal import SOCKET, Journal, stderr_is_journal
from nodeagent.log.lines import Lines
from nodeagent.log.messages import DEBUG, ERROR, INFO, MESSAGES, NOTICE, WARNING
from nodeagent.log.pipeline import PROCESSORS, Logger, Sink, Switch

__all__ = ["DEBUG", "ERROR", "INFO", "NOTICE", "WARNING", "Logger", "close", "event", "get", "setup"]

LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
STDLIB = {DEBUG: logging.DEBUG, INFO: logging.WARNING, WARNING: logging.WARNING, ERROR: logging.ERROR}
"""What our libraries have to say at info level is about themselves, so they start at warning."""


def setup(level: str = "info", *, journal: str | None = None) -> None:
    """Chooses the sink once, for the process. ``journal`` names a socket to use in any case; by default it is
    journald's if our stderr is connected to it, and lines on stderr if not. Call it again to change the level."""
    if journal is None and stderr_is_journal():
        journal = SOCKET
    threshold = LEVELS[level]
    _install(Journal(journal) if journal is not None else Lines(), threshold)
    logging.basicConfig(handlers=[_Foreign()], level=STDLIB[threshold], force=True)
    logging.captureWarnings(True)


def _install(sink: Sink, threshold: int) -> None:
    close()
    sink.threshold = threshold
    _switch.sink = sink


class _Foreign(logging.Handler):
    """Entries of the standard library's logging."""

    def emit(self, record: logging.LogRecord) -> None:
        priority = ERROR if record.levelno >= logging.ERROR else WARNING if record.levelno >= logging.WARNING else DEBUG
        code = {"CODE_FILE": record.pathname, "CODE_LINE": record.lineno, "CODE_FUNC": record.funcName}
        get(record.name).log(priority, record.getMessage(), exc_info=record.exc_info, **code)


def get(name: str) -> Logger:
    """A logger for one module; works before ``setup`` too, since it looks up the sink at each use."""
    return Logger(_switch, PROCESSORS, {"source": name})


def event(kind: EventKind, message: str, *, priority: int | None = None, **fields: Any) -> None:
    """One event of the agent's life, with its MESSAGE_ID. ``priority`` where this one matters more or less than its
    kind (a restart among file writes). Fields that are None or "" are left out; a reason brings its hint along."""
    known = MESSAGES[kind]
    fields.setdefault("hint", hint(str(fields.get("reason") or "")))
    get("").log(known.priority if priority is None else priority, message, MESSAGE_ID=known.id, **fields)


def close() -> None:
    """Closes the sink's socket. What is logged afterwards goes nowhere until the next ``setup``."""
    _switch.sink.close()


_switch = Switch(Lines())
