"""Turn a log call into an entry for a sink: its origin, without secrets, in a bounded form.

Of structlog this is the bound logger and its chain of processors; its configuration would bring the rest of it along.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from nodeagent._partial_import import without_init
from nodeagent.core.display import displayable, text
from nodeagent.core.redact import redact_value
from nodeagent.log.journal import SYSTEMD
from nodeagent.log.messages import DEBUG, ERROR, INFO, WARNING

with without_init("structlog"):
    from structlog._base import BoundLoggerBase

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

IDENTIFIER = "nodeagent"


class Sink(Protocol):
    # The highest priority number that is written.
    threshold: int

    def send(self, entry: Mapping[str, object]) -> None:
        """Never blocks for long, never raises."""
        ...

    def close(self) -> None: ...


class Switch:
    """Has the sink of the moment, so that a logger may be older than the choice of its sink."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink


class Logger(BoundLoggerBase):
    """structlog's bound logger with syslog's priorities, among them the notice that structlog has not."""

    def log(self, priority: int, message: str, *args: object, **fields: Any) -> None:
        sink: Sink = self._logger.sink
        # Checked first, because a config with hundreds of files has hundreds of entries at debug level.
        if priority > sink.threshold:
            return
        try:
            entry, _ = self._process_event("", message % args if args else message, {"PRIORITY": priority, **fields})
            sink.send(entry[0])
        except Exception as error:  # noqa: BLE001 - an entry that cannot be written must not stop an update
            sink.send({"MESSAGE": f"lost a log entry: {type(error).__name__}", "PRIORITY": ERROR})

    def debug(self, message: str, *args: object, **fields: Any) -> None:
        self.log(DEBUG, message, *args, **fields)

    def info(self, message: str, *args: object, **fields: Any) -> None:
        self.log(INFO, message, *args, **fields)

    def warning(self, message: str, *args: object, **fields: Any) -> None:
        self.log(WARNING, message, *args, **fields)

    def error(self, message: str, *args: object, **fields: Any) -> None:
        self.log(ERROR, message, *args, **fields)

    def exception(self, message: str, *args: object, **fields: Any) -> None:
        self.log(ERROR, message, *args, exc_info=True, **fields)


def _caller() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        # Without this, each entry would have the logging itself as its origin.
        if not module.startswith(("structlog", "nodeagent.log")):
            return frame
        frame = frame.f_back
    return None


def add_origin(_logger: Any, _method: str, entry: EventDict) -> EventDict:
    # An entry of the standard logging brings its own origin.
    if "CODE_FILE" not in entry and (frame := _caller()) is not None:
        code = frame.f_code
        entry.update(CODE_FILE=code.co_filename, CODE_LINE=frame.f_lineno, CODE_FUNC=code.co_qualname)
    return entry


def add_exception(_logger: Any, _method: str, entry: EventDict) -> EventDict:
    """The traceback is for us; the message stays one line."""
    info = entry.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    error = info if isinstance(info, BaseException) else info[1] if info else None
    if error is not None:
        entry["traceback"] = "".join(traceback.format_exception(error)).rstrip()
    return entry


def make_texts(_logger: Any, _method: str, entry: EventDict) -> tuple[tuple[EventDict], dict[str, Any]]:
    """Everything as text without secrets, numbers short. Empty fields are dropped."""
    texts: EventDict = {}
    # Names of configs, which the message repeats.
    names = [str(entry[key]) for key in ("current", "desired") if entry.get(key)]
    for key, value in {"MESSAGE": entry.pop("event"), "SYSLOG_IDENTIFIER": IDENTIFIER, **entry}.items():
        if value is not None and value != "":
            # The other fields of systemd contain no text from outside.
            safe = value if key in SYSTEMD and key != "MESSAGE" else redact_value(key, value, names)
            # A traceback keeps its lines.
            texts[key] = (
                "\n".join(map(text, str(safe).splitlines())) if key == "traceback" else _flat(displayable(safe))
            )
    # structlog wants arguments for the sink's method.
    return (texts,), {}


def _flat(value: Any) -> str:
    match value:
        case float():
            return f"{value:.3f}".rstrip("0").rstrip(".")
        case dict() | list():
            return json.dumps(value, separators=(",", ":"), default=str)
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


# Redaction comes after everything that could still bring in text.
PROCESSORS: Sequence[Processor] = (add_origin, add_exception, make_texts)
