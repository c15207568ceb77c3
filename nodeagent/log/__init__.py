"""Logging with structlog: into the journal with all fields, or as lines on stderr.

The report logs the events of an update with ``event``. Other code uses ``get(__name__)``, libraries use the standard
``logging``; all entries go to the same sink. ``core.redact`` filters each entry last.

    log.setup(settings.log.level)
    log.event(StepDone, "restarted crio.service", update_id=..., step="restart crio.service", seconds=1.2)
    log.get(__name__).warning("no SELinux here", path="/etc")

Fields become ``NODEAGENT_<NAME>`` in the journal. Those of a phase or an update are always named update_id, phase,
step, step_id, index, count, percent, reason, current, desired, boot_id, seconds, unit, path, error.

Before ``setup``, warnings and errors go to stderr, because the stdout of a command is data.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from nodeagent.log.journal import SOCKET, Journal, stderr_is_journal
from nodeagent.log.messages import DEBUG, ERROR, INFO, MESSAGES, NOTICE, WARNING
from nodeagent.log.pipeline import PROCESSORS, Logger, Switch
from nodeagent.reasons import hint
from nodeagent.update.events import Event

__all__ = ["DEBUG", "ERROR", "INFO", "NOTICE", "WARNING", "Logger", "close", "event", "get", "setup"]

LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}

# The thresholds of libraries. Their entries at info level are about themselves, so they begin at warning.
STDLIB = {DEBUG: logging.DEBUG, INFO: logging.WARNING, WARNING: logging.WARNING, ERROR: logging.ERROR}


WORDS = {ERROR: "error", WARNING: "warning", NOTICE: "notice", INFO: "info", DEBUG: "debug"}
COLOURS = {ERROR: "\x1b[31m", WARNING: "\x1b[33m", NOTICE: "\x1b[1m", INFO: "", DEBUG: "\x1b[2m"}
RESET = "\x1b[0m"


def setup(level: str = "info", *, journal: str | None = None) -> None:
    """Set the sink of the process and its level. A later call changes the level.

    ``journal`` is a socket to use. By default it is that of journald if stderr is connected to it, otherwise lines are
    written to stderr.
    """
    if journal is None and stderr_is_journal():
        journal = SOCKET
    threshold = LEVELS[level]
    close()
    _switch.sink = Journal(journal) if journal is not None else Lines()
    _switch.sink.threshold = threshold
    # A library, or an earlier call, may have installed handlers, which would log each entry twice.
    logging.basicConfig(handlers=[_Foreign()], level=STDLIB[threshold], force=True)
    # Warnings of Python would go to stderr, without fields and without the redaction of secrets.
    logging.captureWarnings(True)


class _Foreign(logging.Handler):
    """Receives the entries of the standard ``logging``."""

    def emit(self, record: logging.LogRecord) -> None:
        priority = ERROR if record.levelno >= logging.ERROR else WARNING if record.levelno >= logging.WARNING else DEBUG
        code = {"CODE_FILE": record.pathname, "CODE_LINE": record.lineno, "CODE_FUNC": record.funcName}
        get(record.name).log(priority, record.getMessage(), exc_info=record.exc_info, **code)


def get(name: str) -> Logger:
    """Return the logger of a module. It reads the sink at each use, so it works before ``setup`` too."""
    return Logger(_switch, PROCESSORS, {"source": name})


def event(kind: type[Event], message: str, *, priority: int | None = None, **fields: Any) -> None:
    """Log an event with its MESSAGE_ID. ``priority`` overrides that of its kind (a restart among file writes).

    Fields that are None or "" are omitted; a reason adds its hint.
    """
    known = MESSAGES[kind]
    fields.setdefault("hint", hint(str(fields.get("reason") or "")))
    get("").log(known.priority if priority is None else priority, message, MESSAGE_ID=known.id, **fields)


def close() -> None:
    """Close the socket of the sink. Later entries are lost until the next ``setup``."""
    _switch.sink.close()


class Lines:
    """A sink that writes to the current stderr, which may be redirected at any time."""

    threshold = WARNING

    def send(self, entry: Mapping[str, object]) -> None:
        # Closed, full, or none at all.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            # A terminal shows what happens now. A log of a container is read days later and elsewhere.
            terminal = sys.stderr.isatty()
            clock = time.strftime("%H:%M:%S" if terminal else "%Y-%m-%dT%H:%M:%S%z")
            sys.stderr.write(_line(entry, clock, colour=terminal and "NO_COLOR" not in os.environ))
            sys.stderr.flush()

    def close(self) -> None:
        pass


def _line(entry: Mapping[str, object], clock: str, *, colour: bool) -> str:
    priority = int(str(entry.get("PRIORITY", INFO)))
    word = WORDS.get(priority, "info")
    fields = "  ".join(
        f"{key}={_quoted(str(value))}" for key, value in entry.items() if key.islower() and key != "traceback"
    )
    head = f"{clock} {word:<7} {entry.get('MESSAGE', '')}"
    if colour and COLOURS.get(priority):
        head = f"{COLOURS[priority]}{head}{RESET}"
    lines = [f"{head}  {fields}" if fields else head]
    lines += [f"    {line}" for line in str(entry.get("traceback", "")).splitlines()]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return repr(value) if any(c.isspace() or c in "\"'=" for c in value) else value


_switch = Switch(Lines())
