# SPDX-License-Identifier: Apache-2.0
"""Logging with structlog: into the journal with all fields, or as lines on stderr.

The report logs the events of an update with ``event``. Other code uses ``get(__name__)``, libraries use the standard
``logging``; all entries go to the same sink. ``core.redact`` filters each entry last. The loop runs an update in
a ``context`` with its id and phase, so that the entries of all modules below have them.

    log.setup(settings.log.level)
    log.event(MESSAGE_ID, "restarted crio.service", priority=log.INFO, step="restart crio.service", seconds=1.2)
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
from collections.abc import Iterator, Mapping
from typing import Any

import structlog.contextvars
from structlog.processors import TimeStamper

from nodeagent.core.syslog import DEBUG, ERROR, INFO, NOTICE, WARNING
from nodeagent.log.journal import SOCKET, Journal, stderr_is_journal
from nodeagent.log.pipeline import LEVELS, Sink, configure, get
from nodeagent.reasons import hint

__all__ = ["DEBUG", "ERROR", "INFO", "NOTICE", "WARNING", "change_context", "close", "context", "event", "get", "setup"]

_THRESHOLDS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}

# The thresholds of libraries. Their entries at info level are about themselves, so they begin at warning.
STDLIB = {DEBUG: logging.DEBUG, INFO: logging.WARNING, WARNING: logging.WARNING, ERROR: logging.ERROR}


WORDS = {ERROR: "error", WARNING: "warning", NOTICE: "notice", INFO: "info", DEBUG: "debug"}
COLOURS = {ERROR: "\x1b[31m", WARNING: "\x1b[33m", NOTICE: "\x1b[1m", INFO: "", DEBUG: "\x1b[2m"}
RESET = "\x1b[0m"

# journald has times of its own.
_CLOCK = "timestamp"
_STAMP = TimeStamper("%Y-%m-%dT%H:%M:%S%z", utc=False, key=_CLOCK)
_STAMP_FOR_TERMINAL = TimeStamper("%H:%M:%S", utc=False, key=_CLOCK)


def setup(level: str = "info", *, journal: str | None = None) -> None:
    """Set the sink of the process and its level. A later call changes the level.

    ``journal`` is a socket to use. By default it is that of journald if stderr is connected to it, otherwise lines are
    written to stderr.
    """
    if journal is None and stderr_is_journal():
        journal = SOCKET
    threshold = _THRESHOLDS[level]
    _use(Journal(journal) if journal is not None else Lines(), threshold)
    # A library, or an earlier call, may have installed handlers, which would log each entry twice.
    logging.basicConfig(handlers=[_Foreign()], level=STDLIB[threshold], force=True)
    # Warnings of Python would go to stderr, without fields and without the redaction of secrets.
    logging.captureWarnings(True)


class _Foreign(logging.Handler):
    """Receives the entries of the standard ``logging``."""

    def emit(self, record: logging.LogRecord) -> None:
        level = logging.DEBUG if record.levelno < logging.WARNING else min(record.levelno, logging.ERROR)
        level = level if level in LEVELS.values() else logging.WARNING
        # structlog takes the origin from the record.
        get(record.name).log(level, record.getMessage(), exc_info=record.exc_info, _record=record)


@contextlib.contextmanager
def context(**fields: str) -> Iterator[None]:
    """Inside, each entry has these fields: those of this task, and of the tasks and threads that it starts."""
    with structlog.contextvars.bound_contextvars(**fields):
        yield


def change_context(**fields: str) -> None:
    """Change the fields that the ``context`` of this task has; no effect without a context."""
    bound = structlog.contextvars.get_contextvars()
    structlog.contextvars.bind_contextvars(**{name: value for name, value in fields.items() if name in bound})


def event(message_id: str, message: str, *, priority: int, **fields: Any) -> None:
    """Log an event with its MESSAGE_ID. Fields that are None or "" are omitted; a reason adds its hint."""
    fields.setdefault("hint", hint(str(fields.get("reason") or "")))
    get("").log(LEVELS[priority], message, PRIORITY=priority, MESSAGE_ID=message_id, **fields)


def close() -> None:
    """Close the socket of the sink. Later entries are lost until the next ``setup``."""
    _sink.close()


class Lines:
    """A sink that writes to the current stderr, which may be redirected at any time."""

    def send(self, entry: Mapping[str, object]) -> None:
        # Closed, full, or none at all.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            # A terminal shows what happens now. A log of a container is read days later and elsewhere.
            terminal = sys.stderr.isatty()
            stamped = (_STAMP_FOR_TERMINAL if terminal else _STAMP)(None, "", dict(entry))
            sys.stderr.write(_line(stamped, colour=terminal and "NO_COLOR" not in os.environ))
            sys.stderr.flush()

    def close(self) -> None:
        pass


def _line(entry: Mapping[str, object], *, colour: bool) -> str:
    priority = int(str(entry.get("PRIORITY", INFO)))
    word = WORDS.get(priority, "info")
    fields = "  ".join(
        f"{key}={_quoted(str(value))}"
        for key, value in entry.items()
        if key.islower() and key not in ("traceback", _CLOCK)
    )
    head = f"{entry[_CLOCK]} {word:<7} {entry.get('MESSAGE', '')}"
    if colour and COLOURS.get(priority):
        head = f"{COLOURS[priority]}{head}{RESET}"
    lines = [f"{head}  {fields}" if fields else head]
    lines += [f"    {line}" for line in str(entry.get("traceback", "")).splitlines()]
    return "\n".join(lines) + "\n"


def _quoted(value: str) -> str:
    return repr(value) if any(c.isspace() or c in "\"'=" for c in value) else value


def _use(sink: Sink, threshold: int) -> None:
    global _sink
    _sink.close()
    _sink = sink
    configure(sink, threshold)


_sink: Sink = Lines()
_use(_sink, WARNING)
