# SPDX-License-Identifier: Apache-2.0
"""The processors of structlog that turn a log call into an entry for a sink.

Level, origin, traceback, and the fields of the context come from structlog's own processors. Ours add what structlog
does not have: syslog's priorities and systemd's names, and entries without secrets, in a bounded form.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import structlog
from structlog.processors import CallsiteParameter, CallsiteParameterAdder, EventRenamer
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from nodeagent.core.display import displayable, text
from nodeagent.core.redact import redact_value
from nodeagent.core.syslog import DEBUG, ERROR, INFO, NOTICE, WARNING
from nodeagent.log.journal import SYSTEMD

IDENTIFIER: Final = "nodeagent"

# structlog has the levels of the standard logging, among which is no notice.
LEVELS: Final = {
    DEBUG: logging.DEBUG,
    INFO: logging.INFO,
    NOTICE: logging.INFO,
    WARNING: logging.WARNING,
    ERROR: logging.ERROR,
}
_PRIORITIES: Final = {"debug": DEBUG, "info": INFO, "warning": WARNING}

# The frames of the logging itself are no origin. An entry of the standard logging has its origin in its record, which
# has no qualified name.
_ORIGIN: Final = CallsiteParameterAdder(
    [CallsiteParameter.PATHNAME, CallsiteParameter.LINENO, CallsiteParameter.FUNC_NAME, CallsiteParameter.QUAL_NAME],
    additional_ignores=["nodeagent.log"],
)


class Sink(Protocol):
    def send(self, entry: Mapping[str, object]) -> None:
        """Never blocks for long, never raises."""
        ...

    def close(self) -> None: ...


class _Wrapped:
    """The sink as structlog calls it: by the name of the level."""

    def __init__(self, sink: Sink) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = sink.send


def configure(sink: Sink, threshold: int) -> None:
    """Let all loggers, also those that exist, write to ``sink``. ``threshold`` is the last priority that is written."""
    filtering: Any = structlog.make_filtering_bound_logger(LEVELS[threshold])

    class Logger(filtering):  # type: ignore[misc]
        def _proxy_to_logger(self, method_name: str, event: str | None = None, **fields: Any) -> Any:
            try:
                return super()._proxy_to_logger(method_name, event, **fields)
            except Exception as error:  # noqa: BLE001 - an entry that cannot be written must not stop an update
                sink.send({"MESSAGE": f"lost a log entry: {type(error).__name__}", "PRIORITY": ERROR})

    structlog.configure(
        processors=PROCESSORS,
        wrapper_class=Logger,
        logger_factory=lambda *_names: _Wrapped(sink),
        cache_logger_on_first_use=False,
    )


def get(name: str) -> FilteringBoundLogger:
    """Return the logger of a module. It reads the configuration at each use, so it works before ``setup`` too."""
    logger: FilteringBoundLogger = structlog.get_logger(source=name)
    return logger


def name_as_systemd(_logger: Any, _method: str, entry: EventDict) -> EventDict:
    """Give the priority and the origin the names that systemd defines. A priority in the entry is left alone."""
    entry.setdefault("PRIORITY", _PRIORITIES.get(entry.pop("level"), ERROR))
    entry.pop("_record", None)
    entry["CODE_FILE"] = entry.pop("pathname")
    entry["CODE_LINE"] = entry.pop("lineno")
    function = entry.pop("func_name")
    entry["CODE_FUNC"] = entry.pop("qual_name", function)
    if "exception" in entry:
        # The message stays one line.
        entry["traceback"] = entry.pop("exception")
    return entry


def make_texts(_logger: Any, _method: str, entry: EventDict) -> tuple[tuple[EventDict], dict[str, Any]]:
    """Return everything as text without secrets, numbers short. Empty fields are dropped."""
    texts: EventDict = {}
    # Names of configs, which the message repeats.
    names = [str(entry[key]) for key in ("current", "desired") if entry.get(key)]
    for key, value in {"MESSAGE": entry.pop("MESSAGE"), "SYSLOG_IDENTIFIER": IDENTIFIER, **entry}.items():
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
PROCESSORS: Final[Sequence[Processor]] = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    _ORIGIN,
    structlog.processors.format_exc_info,
    EventRenamer("MESSAGE"),
    name_as_systemd,
    make_texts,
)
